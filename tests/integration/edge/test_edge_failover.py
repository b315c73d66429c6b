"""A primary that dies and a standby that is promoted: the edge goes on there, or says why it cannot; never anything between."""

import contextlib

import psycopg2
import pytest

from edge.commands.lifecycle import Adoption
from headrace.errors import NeedsOperator
from tests.edge.fix_edge import arrive, ids
from tests.rules.waiting import eventually
from tests.servers.fix_stack import Database, reload

#: Whoever tests says when slots are synchronised: a worker would take its time.
_STANDBY = {"sync_replication_slots": "off"}


class Pair:
    """A primary with a table, a standby of it, and an edge that knows both."""

    def __init__(self, private_postgres, edges, interconnect, *, failover, guarded):
        self.primary = private_postgres()
        self.database = Database(self.primary)
        self.database.execute("create table t (id int primary key, note text)")
        self.standby = private_postgres(primary=self.primary, settings=_STANDBY)
        if guarded:
            self.primary.psql("alter system set synchronized_standby_slots = 'standby'")
            reload(self.primary)
        ports = f'"{self.primary.port},{self.standby.port}"'
        more = "failover = true" if failover else ""
        self.edge = edges(self.database, interconnect.url, port=ports, more=more)
        text = self.edge.path.read_text()
        self.edge.path.write_text(text.replace('host = "127.0.0.1"', 'host = "127.0.0.1,127.0.0.1"'))
        self.edge.init()

    def synchronise(self):
        """Wait until the standby has the slot, ready to be used after a promotion."""

        def ready():
            # Log that passes lets the slot reach what the standby can take over.
            self.primary.psql("select pg_log_standby_snapshot()")
            self.standby.psql("select pg_sync_replication_slots()")
            query = (
                f"select count(*) from pg_replication_slots where slot_name = '{self.database.name}' and not temporary"
            )
            return self.standby.psql(query) == "1"

        eventually(ready, saying="the standby has the slot")

    def fail_over(self):
        self.primary.kill()
        self.standby.promote()

    def write_to_the_new_primary(self, *ids):
        with contextlib.closing(psycopg2.connect(self.standby.dsn(self.database.name))) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                for number in ids:
                    cursor.execute("insert into t values (%s)", [number])


@pytest.fixture
def pair(private_postgres, edges, interconnect):
    def make(*, failover=True, guarded=True):
        return Pair(private_postgres, edges, interconnect, failover=failover, guarded=guarded)

    return make


def test_edge_goes_on_at_the_promoted_standby_in_its_epoch_exactly_once(pair, interconnect):
    servers = pair()
    with servers.edge.running() as agent:
        servers.database.execute("insert into t values (1), (2)")
        arrive(interconnect, 2)
        servers.synchronise()
        servers.database.execute("insert into t values (3)")
        arrive(interconnect, 3)

        servers.fail_over()
        servers.write_to_the_new_primary(4, 5)
        arrive(interconnect, 5)
        assert agent.error is None

    assert ids(interconnect) == [1, 2, 3, 4, 5]
    assert servers.edge.checkpoint["timeline"] == 2
    assert {position.epoch for position, _, _ in interconnect.records} == {interconnect.tail.epoch}

    # And an edge that starts anew finds everything in order.
    with servers.edge.running():
        servers.write_to_the_new_primary(6)
        arrive(interconnect, 6)
    assert ids(interconnect) == [1, 2, 3, 4, 5, 6]


def test_edge_that_died_with_the_primary_goes_on_although_something_sent_was_never_acknowledged(pair, interconnect):
    servers = pair()
    with servers.edge.running(stop_seconds=0):
        servers.database.execute("insert into t values (1)")
        arrive(interconnect, 1)
        servers.synchronise()
        interconnect.hold()
        servers.database.execute("insert into t values (2)")
        eventually(lambda: interconnect.withheld)

    servers.fail_over()
    interconnect.let_go()
    servers.write_to_the_new_primary(3)
    with servers.edge.running():
        arrive(interconnect, 3)

    assert ids(interconnect) == [1, 2, 3]


def test_edge_refuses_a_standby_without_the_slot(pair, interconnect):
    servers = pair(failover=False, guarded=False)
    with servers.edge.running() as agent:
        servers.database.execute("insert into t values (1)")
        arrive(interconnect, 1)
        servers.fail_over()
        error = agent.ended()

    assert isinstance(error, NeedsOperator)
    assert "is not there: it was no failover slot" in error.message
    assert "failover = true" in error.hint


def test_edge_refuses_a_standby_that_lacks_what_was_captured_and_names_both_places(pair, interconnect):
    servers = pair(guarded=False)
    with servers.edge.running() as agent:
        servers.database.execute("insert into t values (1)")
        arrive(interconnect, 1)
        servers.synchronise()
        servers.standby.stop()
        servers.database.execute("insert into t values (2)")
        arrive(interconnect, 2)
        eventually(lambda: servers.edge.checkpoint["acknowledged"] == str(interconnect.tail))
        servers.primary.kill()
        servers.standby.start()
        servers.standby.promote()
        error = agent.ended()

    assert isinstance(error, NeedsOperator)
    assert "the former primary had committed what the new one does not have" in error.message
    assert f"captured up to 0/{interconnect.tail.commit:X}" in error.message


def test_unguarded_failover_is_an_operators_matter_and_adoption_goes_on_exactly_once(pair, interconnect):
    servers = pair(guarded=False)
    with servers.edge.running() as agent:
        servers.database.execute("insert into t values (1)")
        arrive(interconnect, 1)
        servers.synchronise()
        servers.fail_over()
        servers.write_to_the_new_primary(2)
        error = agent.ended()
    assert "did not hold back what its standbys lacked" in error.message
    assert "headrace bridge positions" in error.hint

    active = f"select count(*) from pg_replication_slots where slot_name = '{servers.database.name}' and active"
    eventually(lambda: servers.standby.psql(active) == "0", saying="the new primary lets go of the slot")
    servers.edge.checkpoint_file.unlink()
    servers.edge.init(Adoption(interconnect.tail))
    with servers.edge.running():
        arrive(interconnect, 2)

    assert ids(interconnect) == [1, 2]


def test_a_guard_that_is_taken_away_while_the_log_streams_is_noted_within_seconds(pair, interconnect):
    """E17: what is sent from then on may be more than the standby has."""
    servers = pair()
    with servers.edge.running() as agent:
        servers.database.execute("insert into t values (1)")
        arrive(interconnect, 1)
        assert servers.edge.checkpoint["guarded"]

        servers.primary.psql("alter system set synchronized_standby_slots = ''")
        reload(servers.primary)

        eventually(
            lambda: not servers.edge.checkpoint["guarded"], saying="the checkpoint says that nothing is held back"
        )
        servers.database.execute("insert into t values (2)")
        arrive(interconnect, 2)
        assert agent.error is None
    assert ids(interconnect) == [1, 2]
