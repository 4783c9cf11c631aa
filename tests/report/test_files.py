# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

from genmonitor.report.files import find_prefixes, own_files


def test_own_files_leaves_out_links_folders_and_hidden_files(tmp_path):
    (tmp_path / "b.png").write_bytes(b"")
    (tmp_path / "a.json").write_bytes(b"")
    (tmp_path / ".a.json.7.part").write_bytes(b"")
    (tmp_path / "link.png").symlink_to(tmp_path / "b.png")
    (tmp_path / "dangling.png").symlink_to(tmp_path / "nothing")
    (tmp_path / "folder.json").mkdir()
    assert [path.name for path in own_files(tmp_path)] == ["a.json", "b.png"]
    assert own_files(tmp_path / "nothing") == []


def test_find_prefixes_knows_monitors_by_their_json_files():
    files = ["cms_evaluation_00001.json", "cms_raw_values.json", "x_notes.json", "y_samples.png", "z_prompts.json"]
    assert find_prefixes(map(Path, files)) == {"cms", "cms_raw", "x"}
