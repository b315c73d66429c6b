"""Sources that a table of several is without: what happens to it, and to them, when something else happens (plan_model.py)."""

import json

from headrace.schema import COPY_BEGINS, COPY_ENDS
from spark_jobs.silver import held_back, table_load
from spark_jobs.silver.schema_versions import SchemaRecord
from spark_jobs.silver.table_task import TableTask
from spark_jobs.state.published_rows import HeldBack, Table
from tests.unit.spark_jobs.silver.plan_model import World
from tests.unit.spark_jobs.silver.plan_records import schema_text

J, L, T = "jakarta/bank", "london/bank", "public.a"


def calm_world():
    """Return a model in which nothing happens by itself."""
    world = World(1)
    world.random.random = lambda: 0.5
    return world


def load(world):
    """Let all that was written come to bronze, and load it; return the table."""
    world.commit_bronze(world.log[world.taken :])
    world.taken = len(world.log)
    world.load()
    world.check()
    return world.published.tables[T]


def without_jakarta():
    """Return a model with a table that is without a source."""
    world = calm_world()
    world.write(J, T, "c", key=1)
    world.write(L, T, "c", key=1)
    load(world)
    world.write(J, T, "c", key=2, bad=True)
    world.write(L, T, "c", key=2)
    assert list(load(world).held_back) == [J]
    return world


def test_a_failure_that_passes_leaves_the_others_going_on():
    world = without_jakarta()
    world.write(L, T, "c", key=3)
    apply_all = world.apply_all
    world.apply_all = lambda context, tasks, *_: {
        task.table: held_back.fail_table(world.lake, context, task, "no memory") for task in tasks
    }
    table = load(world)
    assert (table.failures, table.held_back, table.problem) == (1, {}, None)
    world.apply_all = apply_all
    table = load(world)
    assert (list(table.held_back), table.failures) == ([J], 0)
    assert table.positions[L] == world.published.positions[L]


def test_a_table_that_a_dead_load_brought_beyond_a_source_that_is_held_back_again_stops_alone():
    world = without_jakarta()
    # A setting lets it have the value, the load dies, and the setting is put back.
    world.cured, world.stream.tables = True, {"cured": True}
    world.write(L, T, "c", key=3)
    publish, world.publish = world.publish, lambda *_: None
    load(world)
    world.publish, world.cured, world.stream.tables = publish, False, {}
    world.write(L, T, "c", key=4)
    world.write(L, "public.b", "c", key=4)
    table = load(world)
    assert (table.held_back, table.problem is None) == ({}, False)
    assert world.published.tables["public.b"].positions == world.published.positions
    world.cure()
    world.write(L, T, "c", key=5)
    assert load(world).positions == world.published.positions


def test_a_copy_of_another_source_is_whole_although_bronze_lacks_the_one_that_is_held_back():
    world = without_jakarta()
    for kind in (COPY_BEGINS, "t", "c"):
        world.write(L, T, kind, key=1)
        load(world)
    world.write(J, "public.b", "c")
    load(world)
    # Bronze was put back from a copy without the last of the one, and has the end of the other's.
    world.bronze.pop()
    ends = len(world.log)
    world.write(L, T, COPY_ENDS)
    world.commit_bronze(world.log[ends:])
    world.load()
    world.check()
    table = world.published.tables[T]
    assert (list(table.held_back), table.copying, table.positions[L]) == ([J], {}, world.published.positions[L])


def test_what_repeats_a_schema_is_no_reason_to_read_all_again():
    world = without_jakarta()
    attempts = []
    apply = world.apply
    world.apply = lambda *given, **named: attempts.append(1) or apply(*given, **named)
    world.described.discard((J, T))
    world.write(J, T, "c", key=1)
    world.write(L, T, "c", key=1)
    assert list(load(world).held_back) == [J]
    assert len(attempts) == 1
    # A truncate of its own is one, and no other source's.
    world.write(L, T, "t")
    load(world)
    assert len(attempts) == 2
    world.write(J, T, "t")
    assert load(world).held_back == {}


def test_a_lost_table_is_made_without_the_sources_that_it_was_without():
    held = {J: HeldBack(at="", reason="another key"), L: HeldBack(at="7", reason="a type")}
    assert held_back.take_back(Table(table=T, held_back=held), lost=True).held_back == held
    assert held_back.take_back(Table(table=T, held_back=held, positions={L: "7"}, problem="x")).problem is None
    assert list(held_back.take_back(Table(table=T, held_back=held, positions={L: "7"}), {L}).held_back) == [L]


def test_reasons_are_bounded_however_long_names_are():
    held = {f"s{number:03}": HeldBack(at="1", reason="x" * 1000) for number in range(300)}
    problem = Table(table=T, held_back=held).as_going_on().problem
    assert len(problem) < 6_000
    assert "so do those of 295 more" in problem


def test_who_has_the_schema_that_most_have_is_tried_first_whatever_the_order_of_its_columns():
    def record(source, *columns):
        described = [
            {"name": name, "typeName": kind, "position": number, "optional": True}
            for number, (name, kind) in enumerate(columns, 1)
        ]
        value = json.loads(schema_text(source, T, "false")[0])
        value["tableChanges"][0]["table"]["columns"] = described
        text = json.dumps(value) if columns else "none"
        return SchemaRecord(source=source, table=T, position="1", value=text, schema=None)

    number, note = ("id", "int8"), ("note", "text")
    records = [record("a", ("id", "text"), note), record("l", number, note), record("m", note, number), record("n")]
    task = TableTask(table=T, path="", published=Table(table=T), high={}, seen=[], records=records)
    assert table_load._order_sources(task) == ["l", "m", "a", "n"]


def test_a_table_whose_folder_is_lost_is_not_made_while_bronze_lacks_records_of_its_sources():
    world = without_jakarta()
    world.write(L, T, COPY_BEGINS)
    load(world)
    for source in (J, L):
        world.write(source, "public.b", "c")
    load(world)
    # Bronze was put back from before any record of it.
    del world.folders[T]
    world.bronze = [("older", [])]
    world.load()
    assert T not in world.folders
    assert world.published.tables[T].version is not None
