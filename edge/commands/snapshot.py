"""`headrace edge snapshot`: requests copies of tables, controls them, and shows their progress.

Requests wait in the state folder, so they work whether the edge runs or not; the edge takes them within a second. Showing the
status reads files alone.

Rows of dead letters are copied again: those in the bridge's list that can be. A dead letter names its row by table and key, as
records do. An engine turns keys into a condition in SQL, and the rest is a snapshot of a part of a table: rows that were deleted
since are simply not there.
"""

import json
import shlex
import sys
import time
from collections.abc import Callable
from typing import Any, BinaryIO

import click
import msgspec

from edge.records.column_policy import Policy
from edge.snapshot.plan import Plan
from edge.snapshot.store import Request, SnapshotStore, unquoted
from headrace.configuration.edge import EdgeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError
from headrace.formats import UNREADABLE
from headrace.printable import echo

#: Rows in one request.
_MANY = 200
_LIST = "Give what 'headrace bridge dead-letters STREAM --json' prints."
_WATCH_SECONDS = 0.5
_STEERING = ("pause", "resume", "cancel")


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
        if key not in (keys := chosen.keys.setdefault(letter.table, [])):
            keys.append(key)
    return chosen


def requests(chosen: Chosen, config: EdgeFile, condition: Callable[[str, list[dict[str, Any]]], str]) -> list[Request]:
    """Return the requests that copy the chosen rows; `condition` is the engine's (edge/engine.py).

    Queries the database for the keys' types. Raises NotConnected, or NeedsOperator for a table that cannot be copied or whose
    keys do not identify its rows.
    """
    policy, copies = Policy.of(config), []
    for table, keys in chosen.keys.items():
        names = list(keys[0])
        if policy.treats_name(table, names):
            raise ConfigurationError(
                f"[policy] hashes the key of {table}, so a dead letter does not identify the row",
                hint=f'Copy the row with a condition: headrace edge snapshot {shlex.quote(table)} --where "…".',
            )
        copies += [
            Request(kind="snapshot", tables=[table], where=condition(table, keys[at : at + _MANY]))
            for at in range(0, len(keys), _MANY)
        ]
    return copies


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


@click.command()
@click.argument("tables", nargs=-1, metavar="[SCHEMA.TABLE]...")
@click.option("--config", "path", required=True, metavar="FILE", help="The edge's TOML file.")
@click.option("--all", "every", is_flag=True, help="Copy every published table.")
@click.option("--where", metavar="SQL", help="Copy the rows that a condition is true of.")
@click.option(
    "--replace",
    is_flag=True,
    help="First write a truncate record for the table, so that rows that are gone at the source are removed too.",
)
@click.option(
    "--dead-letters",
    "letters",
    type=click.File("rb"),
    help="Copy the rows of the open dead letters in a list, as 'headrace bridge dead-letters STREAM --json' prints it; - reads "
    "standard input.",
)
@click.option("--status", is_flag=True, help="Show how far each table is.")
@click.option("--watch", is_flag=True, help="Show it until everything is done.")
@click.option("--pause", is_flag=True, help="Read no more chunks for now.")
@click.option("--resume", is_flag=True, help="Go on after --pause.")
@click.option("--cancel", is_flag=True, help="End these tables' snapshots, or all; what was sent stays sent.")
@click.option("--json", "as_json", is_flag=True, help="Print the status as JSON.")
def snapshot(
    tables: tuple[str, ...],
    path: str,
    where: str | None,
    letters: BinaryIO | None,
    *,
    every: bool,
    replace: bool,
    status: bool,
    watch: bool,
    pause: bool,
    resume: bool,
    cancel: bool,
    as_json: bool,
) -> None:
    """Copy existing rows of tables next to the stream, chunk by chunk.

    For tables that had rows before capture began, tables added to the publication later, and repairs. The rows come as records
    with op 'r'. Interrupted snapshots go on by themselves at the last acknowledged chunk.
    """
    config = load(path, EdgeFile)
    if config.source.debezium is not None:
        raise ConfigurationError(
            "'headrace edge snapshot' is not for [source.debezium]: Debezium copies rows when the source is made",
            hint="See docs/debezium.md.",
        )
    folder = SnapshotStore(config.resolve(config.state.folder), config.source.name)
    steering = [kind for kind, is_set in zip(_STEERING, (pause, resume, cancel), strict=True) if is_set]
    shows = status or watch
    copies = (bool(tables) and not cancel) or every
    if (
        len(steering) + shows + copies + (letters is not None) != 1
        or (tables and every)
        or ((where or replace) and not copies)
    ):
        raise ConfigurationError(
            "give tables to copy (or --all), or one of --dead-letters, --status, --watch, --pause, --resume and --cancel",
            hint="For example: headrace edge snapshot public.orders --config edge.toml",
        )
    if where and (replace or len(tables) != 1):
        raise ConfigurationError(
            "--where goes with one table, and not with --replace",
            hint="A part of a table cannot take the place of the whole.",
        )
    if copies:
        if bad := [name for name in tables if "." not in name]:
            raise ConfigurationError(f"{bad[0]!r} is no table's name", hint="Name it with its schema: public.orders.")
        folder.request(
            Request(kind="snapshot", tables=[unquoted(name) for name in tables], where=where, replace=replace)
        )
        echo(f"Asked for a snapshot of {', '.join(tables) or 'every published table'}. --status shows it.")
    elif letters is not None:
        _ask_again(folder, config, letters.read())
    elif steering:
        (kind,) = steering
        folder.request(Request(kind=kind, tables=[unquoted(name) for name in tables]))  # type: ignore[arg-type]
        echo(f"Asked to {kind} snapshots.")
    else:
        _show(folder, watch=watch, as_json=as_json)


def _ask_again(folder: SnapshotStore, config: EdgeFile, letters: bytes) -> None:
    from edge.engine_registry import engine_of

    choice = choose(parse(letters), config)
    # All of them are made before one is left: a table that is refused leaves no request behind.
    copies = requests(choice, config, engine_of(config).condition)
    for request in copies:
        folder.request(request)
    for words in choice.left_out:
        echo(words)
    if not copies:
        echo("No row is to be copied.")
        return
    tables = ", ".join(f"{len(keys)} of {table}" for table, keys in choice.keys.items())
    echo(f"Asked for rows by their keys: {tables}. --status shows them.")


def _show(folder: SnapshotStore, *, watch: bool, as_json: bool) -> None:
    from rich.live import Live

    from edge.snapshot.store import as_dict, as_table, is_quiet
    from headrace.terminal import Terminal

    if as_json:
        echo(json.dumps(as_dict(*_now(folder))))
        return
    # Nothing is cut where there is no terminal.
    console = Terminal() if sys.stdout.isatty() else Terminal(width=10_000)
    if not watch:
        console.print(as_table(*_now(folder)))
        return
    with Live(console=console, auto_refresh=False) as live:
        while True:
            now = _now(folder)
            live.update(as_table(*now), refresh=True)
            if is_quiet(*now):
                return
            time.sleep(_WATCH_SECONDS)


def _now(folder: SnapshotStore) -> tuple[Plan, list[Request]]:
    # Requests first: one that is taken meanwhile shows twice rather than not at all.
    waiting = [request for _, request in folder.waiting()]
    return folder.plan(), waiting
