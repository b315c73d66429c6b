"""Requests as they come to an edge, what it does of their arguments, and what its state folder holds of them and of snapshots."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from bridge.deliveries.pending import Entry
from bridge.deliveries.record import Record
from bridge.requests.pending import encode as encode_request
from edge.answers.handlers import snapshot
from edge.requests.service import KnownRequests
from edge.snapshot import store
from edge.snapshot.plan import LogTable, Plan, TablePlan
from edge.snapshot.store import SnapshotStore
from headrace.configuration.edge import EdgeFile
from headrace.requests import (
    Content,
    content_of,
    decode_part,
    decode_request,
    new_request,
    parts,
)
from headrace.schema import Column, TableSchema
from headrace.verify import contract
from headrace.verify.canonical import SilverType, SourceType
from headrace.verify.comparison import SourceTable, grid, hashes, keys
from headrace.verify.contract import ComparedColumn, ComparedTable
from headrace.verify.sources import forms
from tests.hostile.spoiling import FaultError, expected, folder_in_memory, json_of, packed, spoil, spoil_bytes

SOURCE = "a/one"
_SPAN = keys(1, 900)
assert _SPAN is not None
GRID = grid(_SPAN, 16)


def spoiled(value: Any, chance: random.Random, share: float = 0.5) -> bytes:
    """Return a value as JSON, spoiled in its bytes or in its values."""
    if chance.random() < share:
        return spoil_bytes(msgspec.json.encode(value), chance)
    return json_of(spoil(msgspec.to_builtins(value), chance))


def request_input(chance: random.Random) -> bytes:
    """Return a request or a part of an answer."""
    request = new_request(SOURCE, "verify", "ann@host", 60, {"tables": ["public.t"], "cells": 16})
    value: Any = request
    if chance.random() < 0.5:
        (value,) = parts(request, "done", Content(data={"rows": [1, 2]}))
    return spoiled(value, chance)


def feed_request(data: bytes) -> None:
    """S2: a request is one whose deadline fits into a message, or it is refused."""
    request = expected(lambda: decode_request(data))
    if request is not None:
        request.seconds_left()
        entry = Entry(Record("", 0, 0, request.source.encode(), data), f"requests/{request.source}")
        entry.sends = 1
        encode_request(entry, "requests")
    part = expected(lambda: decode_part(data))
    if part is not None:
        expected(lambda: content_of(part.content))


# Arguments.

TABLE = ComparedTable(
    name="public.t",
    columns=[
        ComparedColumn(name="id", in_silver=SilverType(name="integer")),
        ComparedColumn(name="note", in_silver=SilverType(name="string"), nan=True),
    ],
    key=["id"],
)
HASH = "0123456789abcdef" * 2
_STEPS: list[contract.Step] = [
    contract.Open(), contract.Tables(start=3), contract.Measure(table=TABLE), contract.Count(table=TABLE),
    contract.Digests(table=TABLE, grid=GRID, cells=[0, 3]), contract.Hashes(table=TABLE, grid=GRID, cells=[1], most=10),
    contract.Rows(table=TABLE, grid=grid(hashes(), 4, within=(_SPAN,)), cells=[1], key_hashes=[HASH]),
    contract.Idle(commit=7), contract.Keep(), contract.Close(),
]  # fmt: skip
_SNAPSHOTS: list[dict[str, Any]] = [
    {"do": "copy", "tables": ["public.t", '"a"."b""c"'], "replace": True}, {"do": "status", "width": 80},
    {"do": "cancel", "tables": ["public.t"]}, {"do": "pause"},
]  # fmt: skip
AT_SOURCE = SourceTable(
    schema="public",
    name="t",
    columns={"id": SourceType(name="int4"), "note": SourceType(name="text")},
    key=("id",),
)


def arguments_input(chance: random.Random) -> bytes:
    """Return the arguments of a request to verify, or for snapshots."""
    if chance.random() < 0.7:
        fields = contract.encode_arguments("0" * 32, chance.randrange(3), chance.choice(_STEPS))
        return packed(("verify", json_of(spoil(fields, chance))))
    return packed(("snapshot", json_of(spoil(chance.choice(_SNAPSHOTS), chance))))


def feed_arguments(data: bytes) -> None:
    """Arguments are what its kind takes, and make no statement of what came, or they are refused."""
    kind, content = msgspec.msgpack.decode(data)
    body = b'{"id":"12345678","source":"a/one","kind":"%b","caller":"ann","deadline":1,"arguments":%b}' % (
        kind.encode(), content,
    )  # fmt: skip
    request = expected(lambda: decode_request(body))
    if request is None:
        return
    if kind == "snapshot":
        with folder_in_memory() as folder:
            expected(lambda: snapshot(_config(folder), request))
            _read_snapshots(Path(folder))
        return
    arguments = expected(lambda: contract.parse_arguments(request.arguments))
    what = arguments.what if arguments is not None else None
    if isinstance(what, contract.Digests | contract.Hashes | contract.Rows):
        for cell in (what.cells or range(what.grid.cells))[:50]:
            what.grid.cell(cell).condition("x")
            what.grid.cut(cell, 16)
    if isinstance(what, contract.Measure | contract.Count | contract.Digests | contract.Hashes | contract.Rows):
        expected(lambda: contract.columns_of(what.table, AT_SOURCE, forms("postgresql")))
        expected(lambda: contract.columns_of(what.table, AT_SOURCE, forms("mysql")))


def _config(folder: str) -> EdgeFile:
    content = {
        "source": {"name": SOURCE, "postgresql": {"host": "x", "database": "x", "user": "x"}},
        "interconnect": {"url": "amqp://x"},
        "state": {"folder": folder},
    }
    return msgspec.convert(content, EdgeFile)


# The state folder.

_PLAN = Plan(
    source=SOURCE,
    epoch=3,
    tables=[
        TablePlan(
            name="public.t", state="running", cursor=["7"], again=[["3"]], rows=5, chunks=1, estimate=9, asked_ms=1,
            started_ms=2, marks_open=True, log_table=LogTable(oid=7, key=("id",), order="int4"),
            marked_schema=TableSchema(
                schema="public", table="t", key=["id"], columns=[Column(name="id", type_name="int4", position=1)]
            ),
        ),
        TablePlan(name="public.u", where="id > 3", replace=True, state="failed", problem="it is gone"),
    ],
)  # fmt: skip
_FORM = store.Form("public.t", (), "{}", 5, ["a column was added"], 7, 3, 2, ("secret",))
_HISTORY = store.HistoryFile(
    epoch=3, tables={"7": [_FORM]}, dropped={"8": "public.u"}, needs_copy={"public.t": store.Mark(["lost"], 5)},
    recurred={"public.t": 6}, labels={"9": {"1": "a"}}, incomplete=True,
)  # fmt: skip
_FILES: dict[str, Any] = {
    "snapshot.json": _PLAN,
    "snapshot-requests/1.json": store.Request(kind="snapshot", tables=["public.t"], where="id > 3", restart=True),
    "snapshot-requests/2.json": store.Request(kind="cancel"),
    "requests.json": {"12345678": 5, "abcdefgh": 1 << 60},
    "tables.json": _HISTORY,
}


def snapshot_input(chance: random.Random) -> bytes:
    """Return the files of a state folder, one of them spoiled."""
    files = {name: msgspec.json.encode(value) for name, value in _FILES.items()}
    name = chance.choice(list(files))
    return packed(files | {name: spoiled(_FILES[name], chance)})


def feed_snapshot(data: bytes) -> None:
    """What is damaged is refused with its path, or removed where it is a request; what is taken is used."""
    with folder_in_memory() as folder:
        (Path(folder) / "snapshot-requests").mkdir()
        for name, content in msgspec.msgpack.decode(data).items():
            (Path(folder) / name).write_bytes(content)
        _read_snapshots(Path(folder))
        request = new_request(SOURCE, "snapshot", "ann", 60)
        if expected(lambda: KnownRequests(Path(folder)).add(request)) is False:
            raise FaultError("a new request is known")
        history = expected(lambda: store.read(Path(folder) / "tables.json"))
        for form in [each for forms in history.tables.values() for each in forms] if history is not None else []:
            store.unreported(form)


def _read_snapshots(folder: Path) -> None:
    kept = SnapshotStore(folder, SOURCE)
    waiting = expected(kept.waiting) or []
    plan = expected(kept.plan)
    if plan is None:
        return
    for path, request in waiting:
        match request.kind:
            case "snapshot":
                names = [store.unquoted(name) for name in request.tables]
                plan.add_all(names, where=request.where, replace=request.replace, now_ms=5, restart=request.restart)
            case "cancel":
                plan.cancel(request.tables, 5)
            case _:
                plan.paused = request.kind == "pause"
        kept.taken(path)
    _ = plan.next, plan.figures(), plan.failures(), [*plan.abandoned()]
    msgspec.json.encode(store.as_dict(plan, []))
    store.as_table(plan, [])
    plan.enter(9)
    kept.save(plan)
    kept.plan()


Target = tuple[Callable[[random.Random], bytes], Callable[[bytes], None]]
TARGETS: dict[str, Target] = {
    "request": (request_input, feed_request),
    "arguments": (arguments_input, feed_arguments),
    "snapshot": (snapshot_input, feed_snapshot),
}
