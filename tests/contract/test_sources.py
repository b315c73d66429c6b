"""What consumers may rely on whatever the source's engine is: the same statements, at PostgreSQL and at MariaDB."""

import json

import pytest

from edge.engine_registry import engine_of
from headrace.schema import TableSchema
from tests.edge.fix_edge import arrive
from tests.rules.waiting import eventually


@pytest.fixture(params=["postgresql", "mariadb"])
def source(request):
    """Return an edge of one engine with a table `t` of its own, and what runs SQL there."""
    if request.param == "postgresql":
        database, edge = request.getfixturevalue("database"), request.getfixturevalue("edge")
        database.execute("alter table t replica identity full")
        return edge, database
    return request.getfixturevalue("maria_edge"), request.getfixturevalue("maria")


def test_changes_have_the_same_envelope(source, interconnect):
    edge, database = source
    with edge.running():
        database.execute("insert into t values (1, 'Ana'), (2, 'a \"quoted\" ü')")
        database.execute("update t set note = 'Budi' where id = 1")
        database.execute("update t set id = 3 where id = 2")
        database.execute("delete from t where id = 1")
        database.execute("truncate table t")
        arrive(interconnect, 6)

    shown = [(change["op"], change["before"], change["after"]) for change in interconnect.changes]
    ana, budi = {"id": 1, "note": "Ana"}, {"id": 1, "note": "Budi"}
    quoted = {"id": 2, "note": 'a "quoted" ü'}
    assert shown == [
        ("c", None, ana), ("c", None, quoted), ("u", ana, budi), ("u", quoted, quoted | {"id": 3}), ("d", budi, None),
        ("t", None, None),
    ]  # fmt: skip
    keys = [key for _, key, value in interconnect.records if value and "op" in value]
    assert keys == [{"id": 1}, {"id": 2}, {"id": 1}, {"id": 3}, {"id": 1}, None]
    for position, _, value in interconnect.records:
        assert value["source"]["position"] == str(position)
        assert value["source"]["table"] == "t"
        assert value["source"]["name"] == "jakarta/bank"
        assert value["source"]["snapshot"] == "false"


def test_transactions_stay_whole_and_in_order(source, interconnect):
    edge, database = source
    with edge.running():
        database.execute("insert into t values (1, 'a'), (2, 'b'), (3, 'c')")
        database.execute("update t set note = 'd'")
        arrive(interconnect, 6)

    numbers = [change["transaction"]["total_order"] for change in interconnect.changes]
    last = [change["transaction"].get("last", False) for change in interconnect.changes]
    ids = [change["transaction"]["id"] for change in interconnect.changes]
    assert numbers == [1, 2, 3] * 2
    assert last == [False, False, True] * 2
    assert len(set(ids[:3])) == len(set(ids[3:])) == 1 < len(set(ids))
    positions = [position for position, _, value in interconnect.records if "op" in value]
    assert positions == sorted(set(positions))
    assert [position.ordinal for position in positions] == [0, 1, 2] * 2


def test_schema_goes_ahead_of_the_first_change_and_of_the_first_one_after_an_alter(source, interconnect):
    edge, database = source
    with edge.running():
        database.execute("insert into t values (1, 'a')")
        database.execute("alter table t add column more int")
        database.execute("insert into t values (2, 'b', 3)")
        arrive(interconnect, 2)

    shown = [value for _, _, value in interconnect.records]
    assert ["tableChanges" in value for value in shown] == [True, False, True, False]
    first, second = (TableSchema.parse(json.dumps(shown[number])) for number in (0, 2))
    assert (first.key, [column.name for column in first.columns]) == (["id"], ["id", "note"])
    assert [column.name for column in second.columns] == ["id", "note", "more"]


@pytest.mark.parametrize("source", ["postgresql", pytest.param("mariadb", marks=pytest.mark.long)], indirect=True)
def test_wide_table_that_is_altered_again_and_again_outlives_restarts(source, interconnect):
    """A history of schemas grew too long to start from again (B11): the checkpoint holds none."""
    edge, database = source
    columns = ", ".join(f"c{number} int" for number in range(500))
    database.execute(f"create table wide (id int primary key, {columns})")
    edge.start()
    for number in range(200):
        database.execute(f"alter table wide add column more{number} int")
        database.execute(f"insert into wide (id, more{number}) values ({number}, {number})")
        if number in (100, 199):
            edge.kill()
            edge.start()
    arrive(interconnect, 200)

    assert [change["after"]["id"] for change in interconnect.changes] == list(range(200))
    assert all(change["after"][f"more{number}"] == number for number, change in enumerate(interconnect.changes))
    newest = [json.dumps(value) for _, _, value in interconnect.records if "tableChanges" in value][-1]
    assert len(TableSchema.parse(newest).columns) == 701
    assert len(json.dumps(edge.checkpoint)) < 10_000
    assert edge.terminate() == 0


@pytest.mark.parametrize("fault", ["release", "modify"])
def test_what_was_not_accepted_is_sent_again_in_order(source, interconnect, fault):
    edge, database = source
    interconnect.faults += [fault, fault]
    with edge.running():
        for number in range(5):
            database.execute(f"insert into t values ({number}, 'x')")
        arrive(interconnect, 5)

    assert [change["after"]["id"] for change in interconnect.changes] == list(range(5))


def test_nothing_is_confirmed_before_it_is_accepted(source, interconnect):
    edge, database = source
    interconnect.hold()
    with edge.running(stop_seconds=0.1):
        before = edge.checkpoint["acknowledged"]
        database.execute("insert into t values (1, 'a')")
        eventually(lambda: interconnect.withheld, saying="the row is on the way")
        (batch,) = [batch for _, batch in interconnect._holding if len(batch)]
        assert edge.checkpoint["acknowledged"] == before
        # Log without changes ahead of it may be confirmed.
        assert engine_of(edge.config).state.read(edge.source).confirmed <= batch.first.commit

    assert edge.checkpoint["acknowledged"].endswith("/0000000000000000/00000000")
    interconnect.let_go()
    with edge.running():
        arrive(interconnect, 1)
    assert [change["after"]["id"] for change in interconnect.changes] == [1]
