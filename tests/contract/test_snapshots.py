"""What consumers and operators may rely on of snapshots whatever the source's engine is: the same statements at both."""

import json

import pytest

from headrace.schema import COPY_BEGINS, COPY_ENDS
from tests.contract.copied import on_its_way, taken
from tests.edge.fix_edge import arrive
from tests.integration.edge.snapshots import ask, folder, held, marks, records
from tests.rules.waiting import eventually


def test_every_row_comes_once_in_key_order_in_chunks_that_are_transactions(source, interconnect):
    source.fill("old", 3000)
    with source.edge.running():
        source.asks("old")
        table = source.ends("old")["old"]

    read = records(interconnect, "old", "r")
    assert [key["id"] for key, _ in read] == list(range(1, 3001))
    assert all(value["after"] == {"id": key["id"], "n": 0} for key, value in read)
    assert all(value["source"]["snapshot"] == "incremental" and value["before"] is None for _, value in read)
    assert (table.state, table.rows) == ("done", 3000)
    chunks = {}
    for _, value in read:
        chunks.setdefault(value["transaction"]["id"], []).append(value["transaction"])
    assert len(chunks) > 1
    for chunk in chunks.values():
        assert [each["total_order"] for each in chunk] == list(range(1, len(chunk) + 1))
        assert [each.get("last", False) for each in chunk] == [False] * (len(chunk) - 1) + [True]
    positions = [position for position, _, value in interconnect.records if value and "op" in value]
    assert positions == sorted(set(positions))


def test_wide_rows_come_in_chunks_of_bounded_size(source, interconnect):
    source.fill(
        "wide", 200, columns="id int primary key, body text", values="i, repeat(concat(i, repeat('-abcdef', 5)), 1500)"
    )
    with source.edge.running():
        source.asks("wide")
        table = source.ends("wide")["wide"]

    sizes = {}
    for _, value in records(interconnect, "wide", "r"):
        sizes[value["transaction"]["id"]] = sizes.get(value["transaction"]["id"], 0) + len(value["after"]["body"])
    assert (table.state, table.rows) == ("done", 200)
    assert max(sizes.values()) < 3_000_000


def test_a_request_left_while_the_edge_is_away_is_served_when_it_runs(source, interconnect):
    source.fill("old", 2)
    edge = source.edge

    asked = edge.command("snapshot", source.named("old"), "--where", "id > 1 -- or more")
    before = json.loads(edge.command("snapshot", "--status", "--json").stdout)
    with edge.running():
        source.ends("old")
    after = json.loads(edge.command("snapshot", "--status", "--json").stdout)

    assert asked.returncode == 0
    assert (before["requests_waiting"], before["tables"]) == (1, [])
    assert after["requests_waiting"] == 0
    assert [(it["table"], it["state"], it["rows"]) for it in after["tables"]] == [(source.named("old"), "done", 1)]
    assert [key["id"] for key, _ in records(interconnect, "old", "r")] == [2]


def test_init_with_snapshot_copies_every_captured_table(source, interconnect):
    source.fill("a", 1)
    source.fill("b", 2)
    asked = source.edge.command("init", "--snapshot")
    with source.edge.running():
        tables = source.ends("a", "b")

    assert asked.returncode == 0
    assert [key["id"] for table in "ab" for key, _ in records(interconnect, table, "r")] == [1, 1, 2]
    assert {name: table.state for name, table in tables.items()} == {"a": "done", "b": "done", "t": "done"}


def test_a_pause_holds_and_a_resume_goes_on_where_it_was(source, interconnect):
    source.fill("old", 20_000)
    with source.edge.running():
        arrive(interconnect, 20_000)
        interconnect.hold()
        source.asks("old")
        on_its_way(interconnect)
        ask(source.edge, kind="pause")
        taken(source)
        interconnect.let_go()
        eventually(lambda: source.plan("old").chunks > 0, saying="what was on its way is acknowledged")
        source.run("insert into t values (1, 'x')")
        eventually(lambda: records(interconnect, "t"), saying="the stream goes on")
        paused = folder(source.edge).plan()
        ask(source.edge, kind="resume")
        source.ends("old")

    assert paused.paused
    assert 0 < paused.tables[0].rows < 20_000
    assert [key["id"] for key, _ in records(interconnect, "old", "r")] == list(range(1, 20_001))


def test_a_cancelled_snapshot_ends_and_the_next_one_begins(source, interconnect):
    source.fill("old", 20_000)
    source.fill("other", 1)
    with source.edge.running():
        arrive(interconnect, 20_001)
        interconnect.hold()
        source.asks("old", "other")
        on_its_way(interconnect)
        source.asks("old", kind="cancel")
        taken(source)
        interconnect.let_go()
        tables = source.ends("other")

    assert (tables["old"].state, tables["other"].state) == ("cancelled", "done")
    assert len(records(interconnect, "old", "r")) < 20_000
    # Consumers that wait for the end of the copy get it (L34).
    assert marks(interconnect, "old") == [COPY_BEGINS, COPY_ENDS]


@pytest.mark.parametrize(
    "statements",
    [
        ("truncate table old", "insert into old values (7, 7)"),
        ("alter table old add note varchar(9)", "update old set note = 'x', n = 5 where id > 19000"),
    ],
    ids=["truncated", "altered"],
)
def test_a_table_that_changes_as_a_whole_while_it_is_copied_is_the_sources_in_the_end(source, interconnect, statements):
    source.fill("old", 20_000)
    with source.edge.running():
        arrive(interconnect, 20_000)
        interconnect.hold()
        source.asks("old")
        on_its_way(interconnect)
        source.run(*statements)
        interconnect.let_go()
        table = source.ends("old")["old"]
        wanted = source.stored("old")

        def numbers():
            return {key: {"id": row["id"], "n": row["n"]} for key, row in held(interconnect, "old").items()}

        eventually(lambda: numbers() == wanted, saying="the consumer holds what the database holds")
    assert table.state == "done"


def test_a_table_that_is_swapped_for_another_one_while_it_is_copied_is_the_sources_in_the_end(source, interconnect):
    """As gh-ost, pt-online-schema-change and nightly loads do it: with other rows, the former ones under a name of their own."""
    source.fill("old", 20_000)
    source.fill("new", 15_000, values="i * 3, i")
    if not source.is_mariadb:
        names = ("old", "gone"), ("new", "old")
        swap = ["begin", *(f"alter table {former} rename to {name}" for former, name in names), "commit"]
    else:
        swap = ["rename table old to gone, new to old"]
    with source.edge.running() as agent:
        arrive(interconnect, 35_000)
        interconnect.hold()
        source.asks("old")
        on_its_way(interconnect)
        source.run(*swap, "update old set n = n + 1 where id < 300", "delete from old where id > 44000")
        interconnect.let_go()
        table = source.ends("old")["old"]
        needs = f"{source.named('old')} needs a copy"
        assert table.state == "done"
        assert any(words.startswith(needs) for words in agent.figures.warnings)
        source.asks("old", replace=True)
        source.ends("old")
        wanted = source.stored("old")

        def numbers():
            return {key: {"id": row["id"], "n": row["n"]} for key, row in held(interconnect, "old").items()}

        eventually(lambda: numbers() == wanted, saying="the consumer holds what the database holds")
        assert not any(words.startswith(needs) for words in agent.figures.warnings)


def test_replacing_tells_consumers_first_to_forget_the_table(source, interconnect):
    """A copy that repairs a gap lets rows go that were deleted in it (B15)."""
    source.fill("old", 5)
    with source.edge.running():
        source.asks("old", replace=True)
        source.ends("old")

    assert [value["op"] for _, value in records(interconnect, "old")] == ["c"] * 5 + ["t"] + ["r"] * 5
    # Marks are around the truncate and the rows, for consumers that wait for the whole copy (L34).
    of_table = [value for _, _, value in interconnect.records if value and value["source"].get("table") == "old"]
    kinds = [value.get("op") or value["source"]["snapshot"] for value in of_table]
    assert [kind for kind in kinds if kind != "false"] == [*"ccccc", COPY_BEGINS, *"trrrrr", COPY_ENDS]
    assert "last" in of_table[-1]["transaction"]
    assert held(interconnect, "old") == source.stored("old")


def test_what_cannot_be_copied_is_said_with_what_to_do_and_the_stream_goes_on(source, interconnect):
    source.fill("good", 1)
    with source.edge.running():
        source.asks("missing")
        source.asks("good", where="nonsense = 1")
        tables = source.ends("good", "missing")
        source.run("insert into t values (1, 'x')")
        eventually(lambda: records(interconnect, "t"), saying="the stream goes on")

    assert {table.state for table in tables.values()} == {"failed"}
    for name, said, hint in (("missing", "does not exist", "Check its name"),
                             ("good", "a column that does not exist", "condition")):  # fmt: skip
        assert said in tables[name].problem
        assert hint in tables[name].problem
