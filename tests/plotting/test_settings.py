# SPDX-License-Identifier: Apache-2.0
import pickle
import shutil
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.font_manager import fontManager

from genmonitor.plotting.settings import Settings


@pytest.fixture
def added(tmp_path, monkeypatch):
    """A font that the user has added."""
    monkeypatch.setattr(fontManager, "ttflist", list(fontManager.ttflist))
    path = str(tmp_path / "added.ttf")
    shutil.copy(Path(mpl.get_data_path(), "fonts", "ttf", "cmr10.ttf"), path)
    fontManager.addfont(path)
    return path


def known():
    return {font.fname for font in fontManager.ttflist}


def test_settings_hold_for_a_call_and_no_longer():
    with mpl.rc_context({"axes.titlesize": 31}):
        settings = pickle.loads(pickle.dumps(Settings.current()))
    before = mpl.rcParams["axes.titlesize"]
    assert settings.call(lambda: mpl.rcParams["axes.titlesize"]) == 31
    assert mpl.rcParams["axes.titlesize"] == before
    assert "backend" not in settings.parameters


def test_added_font_is_taken_along_where_it_is_used(added, monkeypatch):
    assert added not in Settings.current().fonts
    with mpl.rc_context({"font.family": "cmr10"}):
        settings = Settings.current()
    monkeypatch.setattr(fontManager, "ttflist", [font for font in fontManager.ttflist if font.fname != added])
    assert settings.call(lambda: added in known())
