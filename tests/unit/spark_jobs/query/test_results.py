"""L9, L20: what an answer's forms keep, and which statements of a script run."""

import csv
import io
from unittest.mock import MagicMock

import pytest

from spark_jobs.query import engine, results


def test_csv_tells_null_from_an_empty_text():
    assert results.csv_line(["a", None, "", 'say "x"', "1,5", "two\nlines"]) == 'a,,"","say ""x""","1,5","two\nlines"\n'
    cells = ["plain", "1,5", 'a "b"', "two\nlines", " x "]
    assert next(csv.reader(io.StringIO(results.csv_line(cells)))) == cells


class Answer:
    """A DataFrame of one row, as far as an answer is written of it."""

    def __init__(self, *cells):
        self.columns, self._cells = [f"c{place}\x1b" for place in range(len(cells))], cells

    def toDF(self, *names):  # noqa: N802 - Spark's name.
        return self

    def select(self, *columns):
        return self

    def toLocalIterator(self):  # noqa: N802 - as above.
        return iter([self._cells])


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("form", "to", "escaped"),
    [("table", io.StringIO, True), ("table", Terminal, True), ("csv", Terminal, True), ("csv", io.StringIO, False)],
)
def test_s15_values_and_names_are_no_commands_of_a_terminal(form, to, escaped, monkeypatch):
    """S15: an escape sequence in a row reached the terminal of whoever asked."""
    monkeypatch.setattr(results, "_text", lambda *_: MagicMock())
    out = to()
    results.write(Answer("\x1b]0;owned\x07", "\x9b2J", "plain\ttab"), form, out)
    written = out.getvalue()
    if escaped:
        assert not {"\x1b]", "\x07", "\x9b"} & {
            written[place : place + size] for size in (1, 2) for place in range(len(written))
        }
        assert r"\x1b]0;owned\x07" in written
        assert r"\u009b2J" in written
        assert r"c0\x1b" in written
    else:
        # A program reads what the row has.
        assert "\x1b]0;owned\x07" in written


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["id", "name"], ["id", "name"]),
        (["id", "id", "id"], ["id", "id_2", "id_3"]),
        (["id", "id_2", "id", "id"], ["id", "id_2", "id_3", "id_4"]),
        (["id", "ID"], ["id", "ID"]),
    ],
)
def test_columns_of_one_name_are_kept_apart(names, expected):
    assert results.distinct(names) == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("SELECT 1; SELECT 2", ["SELECT 1", "SELECT 2"]),
        ("SELECT ';', \";\", `;`;\nSELECT 2;\n", ["SELECT ';', \";\", `;`", "SELECT 2"]),
        ("-- first; of all\nSELECT 1;\n/* a;\nb */\n;;", ["-- first; of all\nSELECT 1"]),
        (r"SELECT 'it\'s;'; SELECT r'\'; SELECT 3", [r"SELECT 'it\'s;'", r"SELECT r'\'", "SELECT 3"]),
        ("SELECT 'it''s; one'", ["SELECT 'it''s; one'"]),
        ("SELECT '-- no comment;' AS a; -- one", ["SELECT '-- no comment;' AS a"]),
        ("", []),
        ("-- nothing", []),
    ],
)
def test_a_script_is_split_at_the_ends_of_statements(script, expected):
    assert engine.split(script) == expected
