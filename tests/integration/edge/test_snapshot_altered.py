"""A table that is altered after its copy is prepared and before the copy's first watermark: no record has the former columns."""

import itertools
import json
import subprocess
import sys

import pytest

from edge.mysql.snapshot_reader import SnapshotReader as MysqlReader
from edge.postgres.snapshot_reader import SnapshotReader as PostgresReader
from headrace.schema import COPY_BEGINS, COPY_ENDS
from tests.edge.fix_edge import arrive
from tests.integration.edge.snapshots import ask, ended, held, marks, plans, records, schema_records, stored
from tests.rules.waiting import eventually

FORMER = "create table w (id int primary key, a varchar(9))"
#: As many columns as before: a row that is read by the former description has the right number of them.
ALTERED = ["alter table w drop column a, add column b int", "insert into w values (2, 20)"]
LATER = "insert into w values (3, 30)"

#: The edge's command, which ends as by kill -9 just before it writes the first watermark.
KILLED = """
import os, sys
from edge.{engine}.snapshot_reader import SnapshotReader
SnapshotReader.write_watermark = lambda *_: os._exit(9)
sys.argv = ["headrace", "edge", "run", "--config", {path!r}]
from headrace.command import main
main()
"""


def altered_at_first_watermark(monkeypatch, reader, execute):
    """Have the table altered just before the first watermark is written, and changed before it is described again."""
    todo = [ALTERED]
    write, describe = reader.write_watermark, reader.describe

    def watermark(self, *arguments):
        for statement in todo.pop() if todo else []:
            execute(statement)
        return write(self, *arguments)

    def description(self, *arguments):
        if not todo and description.later:
            execute(description.later.pop())
        return describe(self, *arguments)

    description.later = [LATER]
    monkeypatch.setattr(reader, "write_watermark", watermark)
    monkeypatch.setattr(reader, "describe", description)


def columns_in_order(interconnect):
    """Return the columns of each schema record."""
    return [
        [column["name"] for column in value["tableChanges"][0]["table"]["columns"]]
        for value in schema_records(interconnect)
    ]


def check(interconnect, rows):
    """Every record of the table's new form has its columns, and the copy has every row."""
    listed = [value["after"] for _, value in records(interconnect, "w", "c", "r")]
    assert [set(row) for row in listed] == [{"id", "a"}] + [{"id", "b"}] * (len(listed) - 1)
    assert held(interconnect, "w") == {json.dumps({"id": row["id"]}): row for row in rows}
    assert [columns for columns, _ in itertools.groupby(columns_in_order(interconnect))] == [["id", "a"], ["id", "b"]]
    assert marks(interconnect, "w")[-2:] == [COPY_BEGINS, COPY_ENDS]


ROWS = [{"id": 1, "b": None}, {"id": 2, "b": 20}, {"id": 3, "b": 30}]


@pytest.fixture(params=["postgres", "mysql"])
def source(request):
    """Return the engine, an edge, what runs statements, and the table's name."""
    if request.param == "postgres":
        edge, database = request.getfixturevalue("edge"), request.getfixturevalue("database")
        return request.param, edge, database.execute, "public.w"
    edge, maria = request.getfixturevalue("maria_edge"), request.getfixturevalue("maria")
    return request.param, edge, maria.execute, f"{maria.name}.w"


def test_a_table_altered_before_the_first_watermark_is_copied_and_streamed_by_its_new_columns(
    source, interconnect, monkeypatch
):
    engine, edge, execute, table = source
    altered_at_first_watermark(monkeypatch, PostgresReader if engine == "postgres" else MysqlReader, execute)
    with edge.running() as agent:
        execute(FORMER)
        execute("insert into w values (1, 'a1')")
        arrive(interconnect, 1)
        ask(edge, table, replace=True)
        done = ended(edge, table)
        eventually(lambda: len(held(interconnect, "w")) == 3, saying="all rows arrive")
        warnings = list(agent.figures.warned.values())

    assert done[table].state == "done"
    check(interconnect, ROWS)
    assert warnings == []


def test_a_table_altered_while_the_edge_was_killed_before_the_first_watermark_is_copied_by_its_new_columns(
    source, interconnect
):
    engine, edge, execute, table = source
    with edge.running():
        execute(FORMER)
        execute("insert into w values (1, 'a1')")
        arrive(interconnect, 1)
    ask(edge, table, replace=True)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED.format(engine=engine, path=str(edge.path))], timeout=120, check=False
    )
    assert killed.returncode == 9
    for statement in [*ALTERED, LATER]:
        execute(statement)
    with edge.running():
        done = ended(edge, table)
        eventually(lambda: len(held(interconnect, "w")) == 3, saying="all rows arrive")

    assert done[table].state == "done"
    check(interconnect, ROWS)


def test_a_copy_begins_again_where_its_key_is_ordered_otherwise(edge, database, interconnect, monkeypatch):
    """Rows behind the last key that was copied are other rows then: by number -2000 is behind -2001, by text it is not."""
    todo = ["alter table w alter id type text"]
    read = PostgresReader.rows

    def rows(self, table, where, after, *arguments):
        if after is not None and todo:
            eventually(lambda: plans(edge)["public.w"].cursor, saying="a chunk is acknowledged")
            database.execute(todo.pop())
        return read(self, table, where, after, *arguments)

    monkeypatch.setattr(PostgresReader, "rows", rows)
    database.execute("create table w (id int primary key); insert into w select -i from generate_series(1, 3000) i")
    with edge.running():
        ask(edge, "public.w", replace=True)
        done = ended(edge, "public.w")
        eventually(lambda: held(interconnect, "w") == stored(database, "w"), saying="the consumer has every row")
    assert done["public.w"].state == "done"


def test_a_copy_goes_on_without_a_column_that_is_dropped_between_two_chunks(source, interconnect, monkeypatch):
    engine, edge, execute, table = source
    reader = PostgresReader if engine == "postgres" else MysqlReader
    todo, read = ["alter table w drop column a"], reader.rows

    def rows(self, table, where, after, *arguments):
        if after is not None and todo:
            execute(todo.pop())
        return read(self, table, where, after, *arguments)

    execute(FORMER)
    numbers = "generate_series(1, 2000) i" if engine == "postgres" else "(select seq as i from seq_1_to_2000) s"
    execute(f"insert into w select i, 'a' from {numbers}")
    monkeypatch.setattr(reader, "rows", rows)
    with edge.running():
        ask(edge, table)
        done = ended(edge, table)
    assert done[table].state == "done"
    assert {key["id"] for key, _ in records(interconnect, "w", "r")} == set(range(1, 2001))
    assert set(records(interconnect, "w", "r")[-1][1]["after"]) == {"id"}
