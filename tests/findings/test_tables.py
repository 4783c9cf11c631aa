# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from genmonitor.findings.tables import NARROW, WIDTH, Table, aligned, terminal_width, within

VERDICT = "no evidence of a difference (p = 0.26)"
TABLE = Table(
    ["region", "sites", "error ratio", "where", "against real images"],
    [
        ["cluster_1", 9, "12 ×", "upper left and upper right", VERDICT],
        ["constant", 12, "1.0 ×", "scattered", "differs"],
    ],
    ["sites", "where"],
    {"sites": "how many pixels", "error ratio": "1 × is as good as real"},
)


def test_with_room_each_row_is_a_line_with_all_columns():
    lines = aligned(within(TABLE, 200), 200).splitlines()
    assert len(lines) == 3
    assert lines[1] == f"cluster_1      9         12 ×  upper left and upper right  {VERDICT}"


def test_columns_go_by_rank_and_their_notes_with_them():
    assert within(TABLE, 74).columns == ["region", "error ratio", "where", "against real images"]
    assert within(TABLE, 74).legend == "error ratio: 1 × is as good as real"
    assert within(TABLE, 50).columns == ["region", "error ratio", "against real images"]
    assert within(TABLE, 1).columns == ["region", "error ratio", "against real images"]  # these stay


def test_cells_go_on_in_a_second_line_and_words_stay_whole():
    lines = aligned(within(TABLE, 68), 68).splitlines()
    assert max(map(len, lines)) <= 68
    assert lines[1].split() == ["cluster_1", "12", "×", *["upper", "left", "and", "upper", "no", "evidence", "of", "a"]]
    assert lines[2].split() == ["right", "difference", "(p", "=", "0.26)"]


@given(st.lists(st.lists(st.text("ab ", max_size=40), min_size=3, max_size=3), max_size=4), st.integers(20, 200))
def test_no_word_is_lost_or_broken(rows, width):
    table = Table(["one", "two", "three"], rows)
    given = " ".join(cell for row in (table.columns, *rows) for cell in row)
    assert sorted(aligned(table, width).split()) == sorted(given.split())


@given(st.lists(st.lists(st.text("ab ", max_size=NARROW), min_size=3, max_size=3), max_size=4), st.integers(67, 200))
def test_lines_fit(rows, width):
    assert max(map(len, aligned(Table(["one", "two", "three"], rows), width).splitlines())) <= width


def test_numbers_stand_to_the_right_and_text_to_the_left():
    lines = aligned(Table(["a", "count", "p"], [["x", 9, "< 0.0001"], ["y", 120, "0.5"]])).splitlines()
    assert lines == ["a  count         p", "x      9  < 0.0001", "y    120       0.5"]


def test_a_table_without_rows_is_its_header():
    assert aligned(Table(["a", "b"], []), 80) == "a  b"


def test_a_pipe_has_the_width_of_every_other_line(monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: False)
    assert terminal_width() == WIDTH
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "93")
    assert terminal_width() == 93
