r"""The interactive prompt of `headrace lake sql`: history, completion of tables and columns, `\d`, `\q`.

A query ends with a semicolon or an empty line. An error leaves the prompt open. Only tables that a query names are opened, for
their columns too, so a lake of thousands of tables prompts as soon as Spark is there.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory

from headrace.errors import ReplicationError
from headrace.terminal import Terminal, in_style
from spark_jobs.query import engine
from spark_jobs.query.engine import SqlEngine
from spark_jobs.query.results import Form, write

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


class _Completions(Completer):
    """Completes words of SQL, names of tables, and the columns of tables that the query names so far."""

    def __init__(self, sql_engine: SqlEngine, lines: list[str]) -> None:
        self._sql_engine, self._lines = sql_engine, lines
        self._words = [*_WORDS, *sql_engine.names()]

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:  # noqa: ARG002 - its interface.
        """Yield what the word at the cursor can become."""
        begun = document.get_word_before_cursor(WORD=True)
        columns = self._sql_engine.columns("\n".join([*self._lines, document.text]))
        for word in [*self._words, *columns]:
            if word.casefold().startswith(begun.casefold()):
                yield Completion(word, -len(begun))


def run(sql_engine: SqlEngine, form: Form) -> None:
    r"""Answer until end of input or `\q`."""
    console = Terminal()
    lines: list[str] = []
    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(_history())),
        completer=_Completions(sql_engine, lines),
        complete_while_typing=False,
    )
    console.print(r"Spark SQL on the lake as published. \d lists tables, \q leaves; end a query with ;")
    while True:
        try:
            line = session.prompt("headrace> " if not lines else "       > ")
        except KeyboardInterrupt:
            lines.clear()
            continue
        except EOFError:
            return
        if not lines and line.strip() in {"\\q", "quit", "exit"}:
            return
        if not lines and line.strip() == "\\d":
            for name in sql_engine.names():
                console.print(name)
            continue
        lines.append(line)
        question = "\n".join(lines).strip()
        if question and (question.endswith(";") or not line.strip()):
            for statement in engine.split(question):
                _answer(sql_engine, statement, form, console)
        if not question or question.endswith(";") or not line.strip():
            lines.clear()


def _answer(sql_engine: SqlEngine, question: str, form: Form, console: Terminal) -> None:
    try:
        write(sql_engine.ask(question), form, sys.stdout, most=_MOST)
    except ReplicationError as error:
        console.print(in_style(error.message, "red"))
    except KeyboardInterrupt:
        console.print("stopped")


def _history() -> Path:
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "headrace"
    home.mkdir(parents=True, exist_ok=True)
    return home / "sql_history"
