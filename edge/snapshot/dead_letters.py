"""Dead letters at the edge: which of those in the bridge's list can be copied again, and the requests that copy their rows.

A dead letter names its row by table and key, as records do. An engine turns keys into a condition in SQL, and the rest is a
snapshot of a part of a table: rows that were deleted since are simply not there. Called by the command, and by engines.
"""

import shlex
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from edge.records.column_policy import Policy
from edge.snapshot.store import Request
from headrace.configuration.edge import EdgeFile
from headrace.errors import ConfigurationError, NeedsOperator
from headrace.formats import UNREADABLE

#: Rows in one request.
_MANY = 200
_LIST = "Give what 'headrace bridge dead-letters STREAM --json' prints."


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a listed dead letter that are needed here."""

    source: str
    table: str
    op: str
    key: str | None
    bytes: int
    state: str


class Chosen(msgspec.Struct, kw_only=True):
    """Keys to be copied, by table, and what is reported of dead letters that are left."""

    keys: dict[str, list[dict[str, object]]] = {}
    left_out: list[str] = []


def parse(data: bytes) -> list[Letter]:
    """Return the dead letters of a list; raise ConfigurationError when it is none."""
    try:
        return msgspec.json.decode(data, type=list[Letter])
    except UNREADABLE as error:
        raise ConfigurationError("the list of dead letters cannot be read", hint=_LIST) from error


def choose(letters: list[Letter], config: EdgeFile) -> Chosen:
    """Return what of a list is to be copied from this source.

    Raises ConfigurationError for a list that is all of other sources, and for rows that are still above the limit.
    """
    name, chosen = config.source.name, Chosen()
    own = [letter for letter in letters if letter.source == name]
    others = sorted({letter.source for letter in letters} - {name})
    if others and not own:
        raise ConfigurationError(
            f"none of these dead letters is of {name}: they are of {', '.join(others)}",
            hint="Give them to the edges of those sources.",
        )
    _note(chosen, len(letters) - len(own), f"of other sources, for their edges: {', '.join(others)}")
    kept = [letter for letter in own if letter.state == "open" and letter.op not in {"d", "t"}]
    _note(chosen, len(own) - len(kept), "replaced since, or a delete's: there is nothing to copy")
    keyed = [letter for letter in kept if letter.key is not None]
    without = sorted({letter.table for letter in kept if letter.key is None})
    _note(chosen, len(kept) - len(keyed), f"without a key, copy with --all or by name: {', '.join(without)}")
    largest = config.records.largest_bytes
    if large := [letter for letter in keyed if letter.bytes > largest]:
        most = max(letter.bytes for letter in large)
        raise ConfigurationError(
            f"{len(large)} of these rows are larger than [records] largest_megabytes = {config.records.largest_megabytes}, "
            f"up to {most} bytes: they would become dead letters again",
            hint=f"Set largest_megabytes = {-(-most >> 20)} or more, see that the topic's max.message.bytes is greater "
            "('headrace bridge doctor'), start the edge again, and repeat this.",
        )
    for letter in keyed:
        key = _key(letter)
        if key not in (found := chosen.keys.setdefault(letter.table, [])):
            found.append(key)
    return chosen


def requests(chosen: Chosen, config: EdgeFile, condition: Callable[[str, list[dict[str, Any]]], str]) -> list[Request]:
    """Return the requests that copy the chosen rows; `condition` is the engine's (edge/engine.py).

    Queries the database for the keys' types. Raises NotConnected, or NeedsOperator for a table that cannot be copied or whose
    keys do not identify its rows.
    """
    policy, made = Policy.of(config), []
    for table, keys in chosen.keys.items():
        names = list(keys[0])
        if policy.treats_name(table, names):
            raise ConfigurationError(
                f"[policy] hashes the key of {table}, so a dead letter does not identify the row",
                hint=f'Copy the row with a condition: headrace edge snapshot {shlex.quote(table)} --where "…".',
            )
        made += [
            Request(kind="snapshot", tables=[table], where=condition(table, keys[at : at + _MANY]))
            for at in range(0, len(keys), _MANY)
        ]
    return made


def unclear(table: str, why: str) -> NeedsOperator:
    """Return the error of an engine that cannot identify a table's rows by dead letters."""
    return NeedsOperator(
        f"dead letters do not identify the rows of {table}: {why}",
        hint=f'Copy the rows with a condition: headrace edge snapshot {shlex.quote(table)} --where "…".',
    )


def check_keys(table: str, keys: list[dict[str, Any]], names: Collection[str]) -> None:
    """Raise NeedsOperator unless the keys are of the columns that the table's key has now."""
    if any(set(key) != set(names) for key in keys):
        raise unclear(table, f"its key is now {', '.join(names)}")


def _key(letter: Letter) -> dict[str, object]:
    try:
        key = msgspec.json.decode(letter.key or "", type=dict[str, object])
    except UNREADABLE as error:
        raise ConfigurationError(f"a dead letter of {letter.table} has a key that is none", hint=_LIST) from error
    if not key:
        raise ConfigurationError(f"a dead letter of {letter.table} has a key that is none", hint=_LIST)
    return key


def _note(chosen: Chosen, count: int, words: str) -> None:
    if count:
        chosen.left_out.append(f"{count} left: {words}")
