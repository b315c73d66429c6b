r"""The interactive prompt of `headrace lake sql`: history, completion of tables and columns, `\d`, `\q`.

A question ends with a semicolon or an empty line. An error leaves the prompt open.
"""

import os
import sys
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory
from rich.console import Console
from rich.markup import escape

from headrace.errors import ReplicationError
from spark_jobs.sql import Desk, Form, write

_WORDS = [
    *(
        "SELECT",
        "FROM",
        "WHERE",
        "GROUP BY",
        "ORDER BY",
        "HAVING",
        "LIMIT",
        "JOIN",
        "LEFT JOIN",
        "ON",
        "AND",
        "OR",
        "NOT",
    ),
    *(
        "IN",
        "IS NULL",
        "AS",
        "COUNT",
        "SUM",
        "MIN",
        "MAX",
        "AVG",
        "DISTINCT",
        "WITH",
        "CASE",
        "WHEN",
        "THEN",
        "ELSE",
        "END",
    ),
]
#: Rows that are shown of one answer.
_MOST = 1000


def run(desk: Desk, form: Form) -> None:
    r"""Ask until end of input or `\q`."""
    console = Console(highlight=False)
    words = [*_WORDS, *desk.names(), *desk.columns()]
    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(_history())),
        completer=WordCompleter(words, ignore_case=True, WORD=True),
        complete_while_typing=False,
    )
    console.print(r"Spark SQL on the lake as published. \d lists tables, \q leaves; end a question with ;")
    lines: list[str] = []
    while True:
        try:
            line = session.prompt("headrace> " if not lines else "       > ")
        except KeyboardInterrupt:
            lines = []
            continue
        except EOFError:
            return
        if not lines and line.strip() in {"\\q", "quit", "exit"}:
            return
        if not lines and line.strip() == "\\d":
            for name in desk.names():
                console.print(name)
            continue
        lines.append(line)
        question = "\n".join(lines).strip()
        if question and (question.endswith(";") or not line.strip()):
            _answer(desk, question, form, console)
        if not question or question.endswith(";") or not line.strip():
            lines = []


def _answer(desk: Desk, question: str, form: Form, console: Console) -> None:
    try:
        write(desk.ask(question), form, sys.stdout, most=_MOST)
    except ReplicationError as error:
        console.print(f"[red]{escape(error.message)}[/]")
    except KeyboardInterrupt:
        console.print("stopped")


def _history() -> Path:
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "headrace"
    home.mkdir(parents=True, exist_ok=True)
    return home / "sql_history"
