"""Asking for snapshots, steering them, and what is refused; what the publication leaves out is left out of chunks as well."""

import json

import pytest

from tests.fix_edge import arrive
from tests.integration.snapshots import ask, copy, ended, folder, held, plans, records, stored
from tests.waiting import eventually


def taken(edge):
    """Wait until the edge has taken every request."""
    eventually(lambda: not folder(edge).waiting(), saying="the requests are taken")


def on_its_way(interconnect):
    """Wait until rows of a chunk are held back."""

    def held_back():
        held = [batch.values[-1] for _, batch in list(interconnect._holding) if batch.values]
        return any(b'"op":"r"' in value for value in held)

    eventually(held_back, saying="a chunk is on its way")


def test_a_request_left_while_the_edge_is_away_is_served_when_it_runs(edge, database, interconnect):
    database.execute("create table old (id int primary key); insert into old values (1), (2)")

    asked = edge.command("snapshot", "public.old")
    before = json.loads(edge.command("snapshot", "--status", "--json").stdout)
    with edge.running():
        ended(edge, "public.old")
    after = json.loads(edge.command("snapshot", "--status", "--json").stdout)
    shown = edge.command("snapshot", "--status").stdout

    assert asked.returncode == 0
    assert (before["requests_waiting"], before["tables"]) == (1, [])
    assert after["requests_waiting"] == 0
    assert [(it["table"], it["state"], it["rows"]) for it in after["tables"]] == [("public.old", "done", 2)]
    assert "public.old" in shown
    assert [key["id"] for key, _ in records(interconnect, "old", "r")] == [1, 2]


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


def test_a_condition_chooses_rows(edge, database, interconnect):
    database.execute(
        "create table old (id int primary key, n int); insert into old select i, i % 7 from generate_series(1, 50) i"
    )
    with edge.running():
        copy(edge, "public.old", where="n = 3 or n = 4 -- of seven")

    assert [key["id"] for key, _ in records(interconnect, "old", "r")] == [i for i in range(1, 51) if i % 7 in {3, 4}]


def test_a_pause_holds_and_a_resume_goes_on_where_it_was(edge, database, interconnect):
    database.execute("create table old (id int primary key); insert into old select i from generate_series(1, 30000) i")
    with edge.running():
        interconnect.hold()
        ask(edge, "public.old")
        on_its_way(interconnect)
        ask(edge, kind="pause")
        taken(edge)
        interconnect.let_go()
        eventually(lambda: plans(edge)["public.old"].chunks > 0, saying="what was on its way is acknowledged")
        database.execute("insert into t values (1)")
        eventually(lambda: records(interconnect, "t"), saying="the stream goes on")
        paused = folder(edge).plan()
        ask(edge, kind="resume")
        ended(edge, "public.old")

    assert paused.paused
    assert 0 < paused.tables[0].rows < 30_000
    assert [key["id"] for key, _ in records(interconnect, "old", "r")] == list(range(1, 30_001))


def test_a_cancelled_snapshot_ends_and_the_next_one_begins(edge, database, interconnect):
    database.execute("create table old (id int primary key); insert into old select i from generate_series(1, 30000) i")
    database.execute("create table other (id int primary key); insert into other values (1)")
    with edge.running():
        interconnect.hold()
        ask(edge, "public.old", "public.other")
        on_its_way(interconnect)
        ask(edge, "public.old", kind="cancel")
        taken(edge)
        interconnect.let_go()
        tables = ended(edge, "public.other")

    assert tables["public.old"].state == "cancelled"
    assert tables["public.other"].state == "done"
    assert len(records(interconnect, "old", "r")) < 30_000


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


def test_a_table_truncated_while_it_is_copied_is_empty_in_the_end(edge, database, interconnect):
    database.execute("create table old (id int primary key); insert into old select i from generate_series(1, 30000) i")
    with edge.running():
        interconnect.hold()
        ask(edge, "public.old")
        on_its_way(interconnect)
        database.execute("truncate old; insert into old values (7)")
        interconnect.let_go()
        ended(edge, "public.old")

    assert held(interconnect, "old") == stored(database, "old")


def test_a_table_altered_while_it_is_copied_goes_on_with_its_new_shape(edge, database, interconnect):
    database.execute("create table old (id int primary key); insert into old select i from generate_series(1, 30000) i")
    with edge.running():
        interconnect.hold()
        ask(edge, "public.old")
        on_its_way(interconnect)
        database.execute("alter table old add note text; update old set note = 'x' where id > 29000")
        interconnect.let_go()
        tables = ended(edge, "public.old")

    rows = held(interconnect, "old")
    assert tables["public.old"].state == "done"
    assert len(rows) == 30_000
    assert {row["id"] for row in rows.values() if row.get("note") == "x"} == set(range(29_001, 30_001))


REFUSED = [
    ("create table bad (id int)", {}, "has no key", "primary key"),
    ("create table bad (id int unique)", {}, "has no key", "replica identity"),
    ("", {}, "does not exist", "schema.table"),
    ("create table bad (id int primary key)", {"where": "nonsense = 1"}, "nonsense", "condition"),
]


@pytest.mark.parametrize(("made", "asked", "said", "hint"), REFUSED)
def test_what_cannot_be_copied_is_said_with_what_to_do_and_the_stream_goes_on(
    edge, database, interconnect, made, asked, said, hint
):
    if made:
        database.execute(made)
    database.execute("create table good (id int primary key); insert into good values (1)")
    with edge.running():
        ask(edge, "public.bad", **asked)
        tables = copy(edge, "public.good")
        database.execute("insert into t values (1)")
        eventually(lambda: records(interconnect, "t"))

    assert tables["public.bad"].state == "failed"
    assert said in tables["public.bad"].problem
    assert hint in tables["public.bad"].problem
    assert tables["public.good"].state == "done"


def test_a_table_that_is_not_published_is_refused_until_it_is(edges, database, interconnect):
    database.execute(
        "create table a (id int primary key); create table b (id int primary key); insert into b values (1)"
    )
    edge = edges(database, interconnect.url, more='tables = ["public.a"]')
    edge.init()
    with edge.running():
        refused = copy(edge, "public.b")["public.b"]
        database.execute(f"alter publication {database.name} add table b")
        added = copy(edge, "public.b")["public.b"]

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
    assert len([value for _, _, value in interconnect.records if "tableChanges" in value]) == 2


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


def test_wide_rows_come_in_chunks_of_bounded_size(edge, database, interconnect):
    database.execute("create table wide (id int primary key, body text)")
    database.execute("insert into wide select i, repeat(md5(i::text), 6000) from generate_series(1, 60) i")
    with edge.running():
        tables = copy(edge, "public.wide")

    sizes = {}
    for _, value in records(interconnect, "wide", "r"):
        sizes[value["transaction"]["id"]] = sizes.get(value["transaction"]["id"], 0) + len(value["after"]["body"])
    assert tables["public.wide"].rows == 60
    assert max(sizes.values()) < 3_000_000


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
