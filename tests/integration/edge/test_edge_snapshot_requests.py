"""Asking for snapshots, steering them, and what is refused; what the publication leaves out is left out of chunks as well."""

import pytest

from tests.edge.fix_edge import arrive
from tests.integration.edge.snapshots import ask, copy, ended, folder, held, records, schema_records, stored
from tests.rules.waiting import eventually


def test_init_with_snapshot_copies_every_published_table_once(edges, database, interconnect):
    database.execute("create table a (id int primary key); insert into a values (1)")
    database.execute("create table b (id int primary key); insert into b values (2)")
    edge = edges(database, interconnect.url)
    with edge.path.open("a") as file:
        file.write('\n[snapshot]\nmode = "initial"\n')
    edge.init()
    with edge.running():
        ended(edge, "public.a", "public.b")
    edge.init()

    assert [key["id"] for table in "ab" for key, _ in records(interconnect, table, "r")] == [1, 2]
    assert folder(edge).waiting() == []


def test_replacing_tells_consumers_to_forget_rows_that_are_gone(edge, database, interconnect):
    with edge.running():
        database.execute("insert into t select i from generate_series(1, 5) i")
        arrive(interconnect, 5)
    # What an edge misses whose slot was lost.
    database.execute("alter publication %s set (publish = 'insert')" % database.name)  # noqa: UP031
    database.execute("delete from t where id < 3; insert into t values (9)")
    database.execute("alter publication %s set (publish = 'insert, update, delete, truncate')" % database.name)  # noqa: UP031
    with edge.running():
        copy(edge, "public.t", replace=True)

    assert held(interconnect, "t") == stored(database, "t")
    assert [value["op"] for _, value in records(interconnect, "t", "t")] == ["t"]


def test_a_table_that_is_not_published_is_refused_until_it_is(edges, database, interconnect):
    database.execute(
        "create table a (id int primary key); create table b (id int primary key); insert into b values (1)"
    )
    edge = edges(database, interconnect.url, more='tables = ["public.a"]')
    edge.init()
    with edge.running() as agent:
        refused = copy(edge, "public.b")["public.b"]
        assert [text[:30] for text in agent.figures.warnings] == ["the copy of public.b failed: t"]
        database.execute(f"alter publication {database.name} add table b")
        added = copy(edge, "public.b")["public.b"]
        assert agent.figures.warnings == []

    assert refused.state == "failed"
    assert 'add table "public"."b"' in refused.problem
    assert added.state == "done"
    assert held(interconnect, "b") == stored(database, "b")


def test_column_lists_row_filters_and_generated_columns_are_as_in_the_stream(edges, database, interconnect):
    database.execute(
        "create table c (id int primary key, secret text, n int, twice int generated always as (n * 2) stored)"
    )
    database.execute("create table g (id int primary key, n int, twice int generated always as (n * 2) stored)")
    database.execute("insert into c select i, 'hidden', i from generate_series(1, 20) i; insert into g values (1, 5)")
    database.execute(
        f"create publication {database.name} for table c (id, n) where (id > 15), table g "
        "with (publish_generated_columns = stored)"
    )
    edge = edges(database, interconnect.url)
    edge.init()
    with edge.running():
        copy(edge, "public.c", "public.g")
        database.execute("insert into c values (30, 'hidden', 30), (3, 'x', 3) on conflict do nothing")
        database.execute("insert into g values (2, 6)")
        eventually(lambda: len(records(interconnect, "g")) == 2)

    rows = [value["after"] for _, value in records(interconnect, "c")]
    assert rows == [{"id": i, "n": i} for i in [16, 17, 18, 19, 20, 30]]
    assert [value["after"]["twice"] for _, value in records(interconnect, "g")] == [10, 12]
    assert len(schema_records(interconnect)) == 2


@pytest.mark.parametrize("via_root", [False, True])
def test_partitions_are_copied_under_the_names_that_the_stream_has(edges, database, interconnect, via_root):
    database.execute("create table p (id int primary key, n int) partition by range (id)")
    database.execute("create table p1 partition of p for values from (0) to (10)")
    database.execute(
        "create table p2 (n int, id int not null); alter table p attach partition p2 for values from (10) to (20)"
    )
    database.execute("insert into p select i, i from generate_series(1, 19) i")
    database.execute(f"create publication {database.name} for table p with (publish_via_partition_root = {via_root})")
    edge = edges(database, interconnect.url)
    edge.init()
    with edge.running():
        ask(edge, "public.p")
        ended(edge, *(["public.p"] if via_root else ["public.p1", "public.p2"]))
        database.execute("update p set n = 0 where id in (1, 19)")
        arrive(interconnect, 21)

    tables = {value["source"]["table"] for _, _, value in interconnect.records if "op" in value}
    assert tables == ({"p"} if via_root else {"p1", "p2"})
    rows = held(interconnect, "p1") | held(interconnect, "p2") | held(interconnect, "p")
    assert rows == stored(database, "p")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give tables"),
        (["public.a", "--all"], "give tables"),
        (["--pause", "--status"], "give tables"),
        (["--pause", "--where", "x"], "give tables"),
        (["a"], "no table's name"),
        (["public.a", "public.b", "--where", "x"], "--where goes with one table"),
        (["public.a", "--where", "x", "--replace"], "--where goes with one table"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused(edge, arguments, said):
    done = edge.command("snapshot", *arguments)

    assert done.returncode == 2
    assert said in done.stderr


def test_a_deferrable_primary_key_is_no_key_in_stream_and_snapshot_and_the_doctor_says_so(edge, database, interconnect):
    """T2: within one statement two rows may have one such key, so the log can give a row's key to another one for a moment."""
    database.execute("create table swap (id int primary key deferrable initially immediate, v text)")
    database.execute("alter table swap replica identity full; insert into swap values (1, 'a'), (2, 'b')")
    with edge.running():
        eventually(edge.reading)
        database.execute("update swap set id = 3 - id")
        eventually(lambda: len(records(interconnect, "swap", "u")) == 2, saying="the updates have arrived")
        tables = copy(edge, "public.swap")
        said = edge.command("doctor").stdout

    assert [key for key, _ in records(interconnect, "swap", "u")] == [None, None]
    assert [value["before"] for _, value in records(interconnect, "swap", "u")] == [
        {"id": 1, "v": "a"},
        {"id": 2, "v": "b"},
    ]
    assert tables["public.swap"].state == "failed"
    assert "deferrable" in tables["public.swap"].problem
    assert "deferrable: public.swap" in " ".join(said.split())
