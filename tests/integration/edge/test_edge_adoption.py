"""A source without its checkpoint: adopted at the position that the far side has, or in a new epoch."""

import time

import pytest

from edge.commands.lifecycle import Adoption
from edge.postgres.checkpoint import PostgresCheckpoint
from edge.progress.checkpoint import State
from headrace.errors import NeedsOperator
from headrace.position import Position
from tests.edge.fix_edge import arrive
from tests.edge.under_test import refused
from tests.rules.waiting import eventually


def test_lost_disk_is_adopted_at_the_position_of_the_far_side(edge, database, interconnect):
    with edge.running():
        database.execute("insert into t values (1)")
        arrive(interconnect, 1)
    edge.let_go()
    edge.checkpoint_file.unlink()
    assert "not initialised" in refused(edge).message
    with pytest.raises(NeedsOperator, match="exists, and there is no checkpoint") as raised:
        edge.init()
    assert "--adopt" in raised.value.hint

    edge.init(Adoption(interconnect.tail))
    with edge.running():
        database.execute("insert into t values (2)")
        arrive(interconnect, 2)

    assert [change["after"]["id"] for change in interconnect.changes] == [1, 2]
    assert len({record[0].epoch for record in interconnect.records}) == 1


def test_adoption_within_a_transaction_that_the_far_side_has_in_part_goes_on_in_it(edges, database, interconnect):
    database.execute("create table t (id int primary key, note text)")
    edge = edges(database, interconnect.url, kilobytes=1)
    edge.init()
    interconnect.credit = 2
    interconnect.hold(after=1)
    with edge.running(stop_seconds=0):
        database.execute("insert into t select i, md5(i::text) from generate_series(1, 5000) i")
        arrive(interconnect, 1)
        eventually(lambda: interconnect.withheld, saying="more of the transaction is on its way")
    assert len(interconnect.changes) < 5000
    edge.let_go()
    edge.checkpoint_file.unlink()
    interconnect.let_go()

    edge.init(Adoption(interconnect.tail))
    with edge.running():
        arrive(interconnect, 5000)

    assert [change["after"]["id"] for change in interconnect.changes] == list(range(1, 5001))


def test_new_epoch_sends_again_what_the_slot_still_has(edge, database, interconnect):
    database.execute("insert into t values (1)")
    old = Position.parse(edge.checkpoint["acknowledged"]).epoch
    edge.checkpoint_file.unlink()
    # The new epoch has to be a later second.
    eventually(lambda: time.time() > old + 1)

    edge.init(Adoption(None))
    with edge.running():
        arrive(interconnect, 1)

    assert interconnect.tail.epoch > old
    assert State(edge.checkpoint_file.parent, PostgresCheckpoint).read("jakarta/bank").position.epoch > old
