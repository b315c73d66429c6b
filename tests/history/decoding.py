r"""Reads the lines of PostgreSQL's `test_decoding` (contrib/test_decoding/test_decoding.c) into transactions.

    BEGIN 761
    table public.accounts: UPDATE: old-key: id[integer]:1 new-tuple: id[integer]:2 name[text]:'it''s'
    table public.a, public.b: TRUNCATE: (no-flags)
    COMMIT 761 (at 2026-01-31 09:15:00.25+00)

Assumes options skip-empty-xacts and include-timestamp, and a session with datestyle ISO, time zone UTC and hex bytea.
A line that it does not understand is an error, never skipped: half a truth would prove nothing.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime

from tests.history.transactions import Change, Row, Transaction, value

_NAME = r'(?:"(?:[^"]|"")+"|[^".,:\s]+)'
_TABLE = rf"{_NAME}\.{_NAME}"
_LINE = re.compile(rf"table ({_TABLE}(?:, {_TABLE})*): (INSERT|UPDATE|DELETE|TRUNCATE):(.*)", re.DOTALL)
_COLUMN = re.compile(
    r""" ("(?:[^"]|"")+"|[^"\[\s]+)\[((?:"[^"]*"|[^\[\]"]|\[\])+)\]:"""
    r"""(null|unchanged-toast-datum|B'[01]*'|'(?:[^']|'')*'|[^\s']+)"""
)
_COMMIT = re.compile(r"COMMIT (\d+) \(at ([^)]+)\)")
_OPERATIONS = {"INSERT": "c", "UPDATE": "u", "DELETE": "d", "TRUNCATE": "t"}


def lsn(text: str) -> int:
    """Return the number of an LSN's text, `16/B374D848`."""
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def transactions(lines: Iterable[tuple[str, str]]) -> Iterator[Transaction]:
    """Yield the transactions of (LSN, line) pairs, in commit order."""
    changes: list[Change] = []
    last_change = 0
    for place, line in lines:
        if line.startswith("BEGIN"):
            changes = []
        elif commit := _COMMIT.fullmatch(line):
            moment = datetime.fromisoformat(commit[2])
            # Whole microseconds first: a float of seconds may fall one millisecond short.
            milliseconds = int(moment.replace(microsecond=0).timestamp()) * 1000 + moment.microsecond // 1000
            yield Transaction(int(commit[1]), milliseconds, last_change, lsn(place), tuple(changes))
        elif not line.startswith("message: "):
            changes.extend(_changes(line))
            last_change = lsn(place)


def _changes(line: str) -> Iterator[Change]:
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"not a line of test_decoding: {line[:200]!r}")
    tables, op, rest = match[1], _OPERATIONS[match[2]], match[3]
    names = [".".join(map(_unquote, re.findall(_NAME, table))) for table in re.findall(_TABLE, tables)]
    if op == "t":
        yield from (Change(name, op, None, None) for name in names)
        return
    (name,) = names
    old: Row | None = None
    if op == "d":
        yield Change(name, op, _without_nulls(_row(rest)[0]), None)
        return
    if rest.startswith(" old-key:"):
        before, _, rest = rest.removeprefix(" old-key:").partition(" new-tuple:")
        old = _without_nulls(_row(before)[0])
    new, absent = _row(rest)
    # A whole old row brings back what the new one leaves out.
    filled = {column: old[column] for column in absent if old and column in old}
    yield Change(name, op, old, new | filled, tuple(column for column in absent if column not in filled))


def _row(text: str) -> tuple[Row, list[str]]:
    row: Row = {}
    absent: list[str] = []
    end = 0
    while match := _COLUMN.match(text, end):
        name, literal, end = _unquote(match[1]), match[3], match.end()
        if literal == "unchanged-toast-datum":
            absent.append(name)
        else:
            row[name] = value(match[2], _unliteral(literal))
    if text[end:] not in {"", " (no-tuple-data)"}:
        raise ValueError(f"not a row of test_decoding from {text[end : end + 100]!r} on")
    return row, absent


def _unliteral(literal: str) -> str | None:
    if literal == "null":
        return None
    if literal.endswith("'"):
        return literal.removeprefix("B")[1:-1].replace("''", "'")
    return literal


def _unquote(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _without_nulls(row: Row) -> Row:
    return {name: held for name, held in row.items() if held is not None}
