"""Answers of edges as headquarters reads them: the parts of one, put together and shown, and those of a verification."""

import contextlib
import io
import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from headrace.errors import NotConnected
from headrace.requests import (
    PART_CHARACTERS,
    Collector,
    Content,
    decode_part,
    decode_request,
    encode,
    new_request,
    parts,
    show,
)
from headrace.status.answer import Answer, SourceStatus
from headrace.verify import contract
from headrace.verify.comparison import Row, RowHash
from headrace.verify.sources import RemoteDatabase, forms
from tests.hostile.fuzz_requests import AT_SOURCE, GRID, HASH, SOURCE, TABLE, spoiled
from tests.hostile.spoiling import FaultError, expected, packed

_REQUEST = msgspec.structs.replace(new_request(SOURCE, "status", "ann@host", 60), id="0" * 32)
_CONTENTS: list[tuple[str, Any]] = [
    ("status", Answer(part="edge", running=True, sources=[SourceStatus(source=SOURCE, state="capturing", warnings=["w"])])),
    ("doctor", [{"level": "wrong", "name": "slot", "text": "it is lost", "hint": "Make it."}]),
    ("snapshot", {"lines": ["public.t done"] * 3000, "plan": {"tables": []}}),
]  # fmt: skip


def answer_input(chance: random.Random) -> bytes:
    """Return the kind of a request and the records that come as its answer: some spoiled, moved, doubled or left out."""
    kind, data = chance.choice(_CONTENTS)
    text = (spoiled({"data": data}, chance, 0.2) if chance.random() < 0.6 else encode({"data": data})).decode(
        errors="replace"
    )
    (part,) = parts(_REQUEST, chance.choice(("done", "done", "failed", "refused", "busy")), Content())
    starts = range(0, len(text), PART_CHARACTERS)
    records = [
        msgspec.to_builtins(part)
        | {"part": n, "last": n == len(starts) - 1, "content": text[at : at + PART_CHARACTERS]}
        for n, at in enumerate(starts)
    ]
    if chance.random() < 0.3:
        records += [msgspec.to_builtins(each) for each in parts(_REQUEST, "expired", Content(message="late"), "bridge")]
    if chance.random() < 0.5:
        chance.shuffle(records)
    encoded = [spoiled(each, chance) if chance.random() < 0.3 else encode(each) for each in records]
    return packed((kind, encoded))


def feed_answer(data: bytes) -> None:
    """Parts are put together to what their kind answers, and that is shown; or the answer is an error of its own."""
    kind, records = msgspec.msgpack.decode(data)
    collector, content = Collector(_REQUEST), None
    for record in records:
        part = expected(lambda record=record: decode_part(record))
        content = content or (part and expected(lambda part=part: collector.add(part)))
    if content is not None:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            for as_json in (False, True):
                expected(lambda as_json=as_json: show(kind, content, as_json=as_json))
        if "\x1b" in printed.getvalue():
            raise FaultError("an escape of a terminal is printed")


# Answers of a verification.

_RESULTS: list[tuple[str, Any]] = [
    ("open", contract.Opened(engine="postgresql", commit=7, place="LSN 0/7")),
    ("tables", contract.Listed(tables=[AT_SOURCE], total=1, sequences=["public.s"])),
    ("about", contract.Measured(about=9, bounds=(1, 9))),
    ("count", 9),
    ("digests", [(0, 5, "12", "34"), (3, 4, "5", "6")]),
    ("hashes", [RowHash(HASH, HASH)]),
    ("rows", [Row(key_hash=HASH, key=("1", None), columns=(HASH, HASH))]),
    ("idle", True),
]


def verification_input(chance: random.Random) -> bytes:
    """Return an answer to a step of a verification."""
    step, result = chance.choice(_RESULTS)
    reply = contract.Reply(state="done", rows=4, result=result)
    if chance.random() < 0.2:
        failure = contract.Failure(kind="NotConnected", message="no database", hint="Start it.")
        reply = contract.Reply(state="failed", failure=failure)
    return packed((step, spoiled(reply, chance, 0.2)))


class _Topics:
    """An edge whose answer to everything is one content, and that is gone then."""

    def __init__(self, data: bytes) -> None:
        self._text = (b'{"data":%b}' % data).decode(errors="replace")
        self._answers: list[bytes] = []
        self._asked = 0

    def send(self, _key: str, value: bytes, _seconds: float) -> None:
        self._asked += 1
        if self._asked > 3:
            raise NotConnected("gone")
        (part,) = parts(decode_request(value), "done", Content())
        self._answers.append(encode(msgspec.structs.replace(part, content=self._text)))

    def read(self, _seconds: float) -> Iterator[bytes]:
        answers, self._answers = self._answers, []
        yield from answers


def feed_verification(data: bytes) -> None:
    """An answer is what its step is answered with, and can be compared, or the verification fails with the edge's name."""
    step, content = msgspec.msgpack.decode(data)
    if len(content) > 20_000:
        # Several parts, which answers have together.
        return
    database = RemoteDatabase(SOURCE, _Topics(content), 5.0)
    side = database.side(AT_SOURCE, [], [])
    result = expected(
        {
            "open": lambda: database.do(contract.Open(placed=True), contract.Opened),
            "tables": database.tables,
            "about": side.bounds,
            "count": side.count,
            "digests": lambda: side.digests(GRID, [0, 3]),
            "hashes": lambda: side.hashes(GRID, [1], 10),
            "rows": lambda: side.rows(GRID, [1], [HASH]),
            "idle": lambda: database.do(contract.Idle(commit=7), bool),
        }[step]
    )
    if step == "digests" and result:
        for digest in result.values():
            digest.plus(digest)
    if step == "tables":
        for table in result or []:
            expected(lambda table=table: contract.columns_of(TABLE, table, forms("postgresql")))
    if step == "rows":
        for row in result or []:
            _ = row.hash


Target = tuple[Callable[[random.Random], bytes], Callable[[bytes], None]]
TARGETS: dict[str, Target] = {
    "answer": (answer_input, feed_answer),
    "verification": (verification_input, feed_verification),
}
