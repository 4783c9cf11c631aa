# SPDX-License-Identifier: Apache-2.0
from genmonitor._html import page_html, text_html


def test_text_is_escaped():
    for shown in (text_html("<b>"), page_html("<b>", "<b>")):
        assert "&lt;b&gt;" in shown
        assert "<b>" not in shown
