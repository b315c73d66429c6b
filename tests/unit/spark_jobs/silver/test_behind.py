"""Which tables a load takes up, and from where: those that are behind their stream go on from their own positions."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from headrace.schema import COPY_BEGINS, COPY_ENDS, TableSchema, copy_mark
from spark_jobs.bronze.increment import Bronze, Since
from spark_jobs.silver import held_back, table_task, tables_load
from spark_jobs.silver.profiles import BatchProfile
from spark_jobs.silver.schema_versions import SchemaRecord
from spark_jobs.state.published_rows import Published, Table

J, L, T, OTHER = "jakarta/bank", "london/bank", "public.t", "public.o"


class Stream:
    """A stream's section in the lake's file."""

    history, deletes, on_incompatible, on_unsupported, readers, tables = False, "hard", "stop", "stop", "delta", {}

    def history_of(self, name):
        return None

    def marks_deleted(self, name):
        return False

    nulls_unsupported = is_open = rebuilds = marks_deleted


LAKE = SimpleNamespace(root="/lake", stream=lambda name: Stream())


def position(number):
    return f"692010c0/{number:016x}/00000000"


def schema_record(number, mark="false", table=T):
    schema, _, name = table.partition(".")
    column = {"name": "id", "typeName": "int8", "length": None, "scale": None, "position": 1, "optional": False}
    source = {"name": J, "schema": schema, "table": name, "snapshot": mark, "position": position(number)}
    change = {"type": "CREATE", "id": "x", "table": {"primaryKeyColumnNames": ["id"], "columns": [column]}}
    text = json.dumps(
        {"databaseName": "b", "schemaName": schema, "ddl": None, "source": source, "tableChanges": [change]}
    )
    return SchemaRecord(
        source=J,
        table=table,
        position=position(number),
        value=text,
        schema=TableSchema.parse(text),
        mark=copy_mark(text),
    )


def published(table):
    """A stream at position 500, one of whose tables is as given."""
    other = Table(table=OTHER, version=9, positions={J: position(500), L: position(500)}, keyed=True, since=1)
    return Published(
        stream="bank",
        load=40,
        bronze_version=50,
        bronze_done=50,
        positions={J: position(500), L: position(500)},
        tables={T: table, OTHER: other},
    )


def of_records(*records):
    return BatchProfile(
        high={J: position(600), L: position(500)}, seen=[], committed_ms={}, beyond={}, records=list(records)
    )


@pytest.mark.parametrize("mark", [COPY_BEGINS, COPY_ENDS])
def test_l36_the_mark_of_a_copy_of_a_stopped_table_has_it_tried_again_from_its_own_positions(mark):
    # given a table that stopped at position 100
    stopped = Table(
        table=T,
        version=7,
        positions={J: position(100), L: position(100)},
        schemas={J: schema_record(1).value},
        problem="column d: no such value in its type",
        bronze_after=10,
        settings=held_back.digest_settings(LAKE, "bank"),
    )
    before = published(stopped)
    # when a range has nothing of it but the mark of a copy
    new = of_records(schema_record(501, mark))
    asked = []

    def profiled(known, since):
        asked.append((known.positions, since))
        return of_records(schema_record(150), schema_record(501, mark))

    tasks = tables_load.tasks(LAKE, context(rest=50), before, {T: stopped}, new, Since(50), profiled)
    # then it is tried again from where it stopped, and never with the changes after the stream's positions alone
    assert asked == [(stopped.positions, Since(10))]
    assert next(record.position for record in tasks[T].records) == position(150)


def test_a_table_that_waits_for_its_copy_goes_with_the_stream():
    waits = Table(table=T, version=7, positions={J: position(300), L: position(500)}, copying={J: position(300)})
    before = published(waits)
    new = of_records(schema_record(501, COPY_BEGINS, OTHER), schema_record(502, COPY_BEGINS))
    tasks = tables_load.tasks(LAKE, context(rest=50), before, {T: waits}, new, Since(50), None)
    assert set(tasks) == {T, OTHER}


def context(**changes):
    return table_task.LoadContext(stream="bank", bronze=Bronze("/lake/bronze/bank", 51), load=41, **changes)


def task(known, after):
    return table_task.TableTask(table=T, path="p", published=known, high={}, seen=[], records=[], after=after)


def test_l44_where_a_table_goes_on_is_known_from_the_first_load_on():
    first = held_back.stop_table(LAKE, context(first=True), task(Table(table=T), None), "no such value")
    assert first.bronze_after == -1
    # and stays known
    again = held_back.stop_table(LAKE, context(rest=100), task(first, Since(-1)), "no such value")
    assert again.bronze_after == -1
    # a table whose folder was lost lacks more than what came since
    assert held_back.stop_table(LAKE, context(rest=100), task(Table(table=T), None), "x").bronze_after is None
    assert held_back.stop_table(LAKE, context(rest=100), task(Table(table=T), Since(100)), "x").bronze_after == 100


def test_l40_a_table_that_fails_is_tried_again_by_later_loads_and_then_stops_alone():
    table = Table(table=T, version=7, positions={J: position(500)})
    for failures in (1, 2):
        table = held_back.fail_table(LAKE, context(rest=100 + failures), task(table, Since(100)), "no memory")
        assert (table.failures, table.problem, table.bronze_after) == (failures, None, 101)
        assert set(tables_load.to_try(LAKE, published(table), {T: table})) == {T}
    table = held_back.fail_table(LAKE, context(rest=103), task(table, Since(100)), "no memory")
    assert (table.problem, table.bronze_after) == ("failed 3 times: no memory", 101)
    assert tables_load.to_try(LAKE, replace(published(table), positions={J: position(501)}), {T: table}) == {}
