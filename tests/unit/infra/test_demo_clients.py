"""The command lines that the demo prints."""

import shlex
from pathlib import Path

from infra.local.demo.clients import QUESTION, Addresses, command_lines


def test_each_line_is_one_command_that_asks_the_same_question_wherever_the_demo_is():
    lines = command_lines(Path("/home/o'neil/a b/lake.toml"), Addresses("c:1", "s:2", "t:3", "m:4"))
    of_duckdb, of_notebook, of_beeline = map(shlex.split, lines)
    for words in (of_duckdb, of_notebook):
        assert words[1] == "-c"
        compile(words[2], "line", "exec")
        assert QUESTION in words[2]
    assert "/home/o'neil/a b/lake.toml" in of_duckdb[2]
    assert "sc://s:2" in of_notebook[2]
    assert of_beeline[-2:] == ["-e", QUESTION]
    assert "jdbc:hive2://t:3/silver" in of_beeline
