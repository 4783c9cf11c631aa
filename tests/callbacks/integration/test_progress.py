# SPDX-License-Identifier: Apache-2.0
import sys

import pytest
from _helpers.modules import LIGHTNING_SAYS, digits, fit, loader, plain

pytestmark = LIGHTNING_SAYS


@pytest.mark.parametrize(("enabled", "terminal"), [(True, True), (False, True), (True, False)])
def test_bar_follows_the_trainers_and_stays_out_of_files(tmp_path, enabled, terminal, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    fit(tmp_path, plain(), val=loader(digits(300, 400)), max_epochs=1, enable_progress_bar=enabled)
    said = capsys.readouterr().err
    assert ("Plain: sampling" in said) == (enabled and terminal)
    assert ("Plain: baseline" in said) == (enabled and terminal)
