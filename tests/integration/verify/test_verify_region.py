"""The source's half of a verification, computed by a whole edge in its region and asked for over a bridge and Kafka."""

from contextlib import closing
from dataclasses import replace

import pytest

from edge.answers.verify_session import Verification
from headrace.configuration.sections import Topics
from headrace.errors import CorruptInput, NeedsOperator, NotConnected, Retryable
from headrace.verify import comparison, contract
from headrace.verify.canonical import Column, SilverType, column
from headrace.verify.postgres.database import SourceDatabase
from tests.bridge.asked_edges import SOURCE
from tests.lake.verify_sides import address
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge", "tests.bridge.fix_asked"]


def columns_of(table, *names):
    silver = {"id": SilverType(name="integer"), "balance": SilverType(name="decimal", scale=2)}
    values = [
        column(name, table.columns[name], silver.get(name, SilverType(name="string")))
        for name in names or table.columns
    ]
    assert all(isinstance(each, Column) for each in values)
    return values


def test_the_region_computes_what_a_connection_to_its_database_does(asked, database):
    with closing(asked.wire()) as wire:
        with (
            asked.verify(wire) as remote,
            SourceDatabase.connect(SOURCE, address(database.dsn), placed=True) as direct,
        ):
            assert remote.place.text.startswith("LSN ")
            assert 0 < remote.place.commit <= direct.place.commit
            accounts, _, wide = direct.tables()
            # What the edge's policy keeps back is not there.
            kept = {name: kind for name, kind in wide.columns.items() if name != "a"}
            assert remote.tables() == [accounts, replace(wide, columns=kept, treated={"a": "mask"})]
            with pytest.raises(CorruptInput, match="has no column 'a'"):
                remote.side(wide, columns_of(wide, "a"), []).digests(comparison.grid(comparison.hashes(), 1))
            with pytest.raises(CorruptInput, match="or it does not leave the region"):
                remote.side(direct.tables()[1], [], []).count()
            table = remote.tables()[0]
            columns = columns_of(table)
            values = [each.side(table, columns, columns[:1]) for each in (remote, direct)]
            assert values[0].bounds() == values[1].bounds() == (1, 2000)
            assert values[0].about() == values[1].about()
            assert values[0].count() == 2000
            for grid in (comparison.grid(comparison.keys(1, 2000), 8), comparison.grid(comparison.hashes(), 8)):
                here, there = (each.digests(grid) for each in values)
                assert here == there
                assert sum(each.rows for each in here.values()) == 2000
                assert values[0].digests(grid, [0, 3]) == {cell: here[cell] for cell in (0, 3)}
                hashes = [each.hashes(grid, [0], 5000) for each in values]
                assert hashes[0] == hashes[1]
                wanted = [each.key_hash for each in hashes[0][:3]]
                rows = [each.rows(grid, [0], wanted) for each in values]
                assert rows[0] == rows[1]
                assert [row.hash for row in rows[0]] == [each.hash for each in hashes[0][:3]]

            # One snapshot: what is written meanwhile is not seen; and nobody else's is taken.
            database.execute("delete from accounts where id = 7")
            assert values[0].count() == 2000
            with pytest.raises(Retryable, match="the edge is at another verification, asked by"):
                asked.verify(wire).__enter__()
        eventually(lambda: asked.held() == 0, saying="the snapshot is let go")
        # Changed since then, however far the edge has come.
        with asked.verify(wire) as remote:
            assert not remote.idle_since(direct.place.commit)
        with asked.verify(wire, placed=False) as remote:
            assert (remote.place, remote.side(table, [], []).count()) == (None, 1999)

        # What a table may not be asked, and who may not be asked.
        with asked.verify(wire) as remote:
            forged = Column(
                name='id" = 1) --', stored="", source="", silver="", free=False, in_silver=SilverType(name="integer")
            )
            with pytest.raises(CorruptInput, match="has no column"):
                remote.side(table, [forged], []).digests(comparison.grid(comparison.hashes(), 1))
            # Of an error of one step the session does not end.
            assert remote.side(table, [], []).count() == 1999
    nowhere = Topics("no-such-requests", "no-such-answers")
    with pytest.raises(NeedsOperator, match="has no topic 'no-such-requests'") as raised:
        asked.wire(topics=nowhere)
    assert "headrace bridge init" in raised.value.hint


def test_an_edge_that_dies_or_is_restarted_ends_the_verification_with_a_clear_message(asked):
    with closing(asked.wire()) as wire:
        with asked.verify(wire) as remote:
            table = remote.tables()[0]
            asked.edge.kill()
            remote.seconds = 10
            with pytest.raises(NotConnected, match="the edge") as raised:
                remote.side(table, [], []).count()
        assert 'via = "direct"' in raised.value.hint
        asked.edge.start()
        with asked.verify(wire, seconds=60) as remote:
            table = remote.tables()[0]
            asked.edge.kill()
            asked.edge.start()
            with pytest.raises(NotConnected, match="the edge has no such verification any more") as raised:
                remote.side(table, [], []).count()
        assert "Verify again" in raised.value.hint


def test_a_verification_that_nobody_goes_on_with_ends_what_runs_in_the_database(database):
    database.execute("create table t (id int primary key)")
    session = Verification(
        "0" * 16,
        "ann@hq",
        "postgresql",
        lambda placed: SourceDatabase.connect(SOURCE, address(database.dsn), placed=placed),
        list,
        idle_seconds=0.5,
    )
    count = contract.Count(table=contract.ComparedTable(name="public.t"))
    assert session.ask(0, contract.Open(placed=False), 30).state == "done"
    with closing(database.connect()) as other, other.cursor() as cursor:
        cursor.execute("begin; lock table t in access exclusive mode")
        # Steps are one after the other, and a step that is asked for again is not done again.
        assert session.ask(1, count, 0.1).state == session.ask(1, None, 0.1).state == "working"
        with pytest.raises(CorruptInput, match="step 3 of a verification does not follow step 1"):
            session.ask(3, count, 0)
        eventually(lambda: session.is_over, saying="nobody asks any more")

        def held():
            return database.execute("select 1 from pg_stat_activity where application_name = 'headrace verify'")

        eventually(lambda: not held(), saying="the statement is ended while the table is still locked")
    assert not session.has_answer(2)
