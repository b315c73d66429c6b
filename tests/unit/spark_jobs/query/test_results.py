"""L9, L20: what an answer's forms keep, and which statements of a script run."""

import csv
import io

import pytest

from spark_jobs.query import engine, results


def test_csv_tells_null_from_an_empty_text():
    assert results.csv_line(["a", None, "", 'say "x"', "1,5", "two\nlines"]) == 'a,,"","say ""x""","1,5","two\nlines"\n'
    cells = ["plain", "1,5", 'a "b"', "two\nlines", " x "]
    assert next(csv.reader(io.StringIO(results.csv_line(cells)))) == cells


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
