"""Fixtures: edges that capture databases of PostgreSQL."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edge.postgres import rows, rows_compiled
from tests.amqp.fix_interconnect import Interconnect
from tests.edge.under_test import EdgeUnderTest, made_in
from tests.rules.waiting import eventually
from tests.servers.fix_stack import Database

_POSTGRESQL = """
[source.postgresql]
host = "127.0.0.1"
port = {port}
database = "{database}"
user = "{user}"
slot = "{slot}"
publication = "{publication}"
"""


class PostgresEdge(EdgeUnderTest):
    """The edge of one database; slot and publication are named as the database is."""

    def __init__(self, folder: Path, database: Database, url: str, **changes: Any) -> None:
        self.database = database
        own = {"port": database.postgres.port, "user": "postgres"}
        own |= dict.fromkeys(("database", "slot", "publication"), database.name)
        own |= {name: changes.pop(name) for name in own.keys() & changes.keys()}
        super().__init__(folder, _POSTGRESQL.format(**own), url, **changes)

    def slot(self) -> dict[str, Any]:
        """Return the slot's row."""
        (row,) = self.database.execute(
            "select to_jsonb(s) from pg_replication_slots s where slot_name = %s", [self.database.name]
        )
        return row[0]

    def confirmed(self) -> int:
        """Return what the slot has confirmed, as a number."""
        high, low = self.slot()["confirmed_flush_lsn"].split("/")
        return int(high, 16) << 32 | int(low, 16)

    def reading(self) -> bool:
        """Whether an edge has the slot."""
        return bool(self.slot()["active"])

    def let_go(self) -> None:
        """Wait until the server has noticed that the edge has ended: a slot that is read can be neither dropped nor adopted."""
        eventually(lambda: not self.reading(), saying="the server lets go of the slot")


@pytest.fixture
def edges(tmp_path: Path) -> Iterator[Callable[..., PostgresEdge]]:
    """Return what makes edges; their processes end with the test."""
    with made_in(tmp_path, PostgresEdge) as make:
        yield make


@pytest.fixture
def edge(edges: Callable[..., PostgresEdge], database: Database, interconnect: Interconnect) -> PostgresEdge:
    """Return an initialised edge of a fresh database that has a table `t`, towards a far side that accepts."""
    database.execute("create table t (id int primary key, note text)")
    made = edges(database, interconnect.url)
    made.init()
    return made


#: How changes are decoded: exactly, by functions made for a table, and in C; the last not on a machine without a compiler.
WAYS = ["exact", "generated", *["c"] * (rows.module is not None)]


@contextmanager
def decoding(way: str) -> Iterator[None]:
    """Let changes be decoded one way, from a table's first one on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_compiled, "WORTH_MAKING", 1_000_000 if way == "exact" else 0)
        if way != "c":
            patch.setattr(rows, "module", None)
        yield


def arrive(interconnect: Interconnect, count: int, seconds: float = 60) -> None:
    """Wait until so many changes have arrived."""
    eventually(
        lambda: len(interconnect.changes) >= count,
        seconds,
        saying=f"{count} changes arrive",
        progress=lambda: len(interconnect.changes),
    )


def ids(interconnect: Interconnect, op: str = "c") -> list[Any]:
    """Return the ids of the rows that arrived as changes of a kind, in order of arrival."""
    return [change["after"]["id"] for change in interconnect.changes if change["op"] == op]


def positions(interconnect: Interconnect) -> list[str]:
    """Return the positions of the changes, in order of arrival."""
    return [change["source"]["position"] for change in interconnect.changes]
