"""A MariaDB source is initialised once, or adopted at a position that its log has; `position` shows where it is."""

import json

import pytest

from edge.commands.lifecycle import Adoption
from headrace.errors import NeedsOperator
from headrace.position import Position
from tests.edge.fix_edge import arrive, ids
from tests.edge.under_test import refused
from tests.rules.waiting import eventually


def test_position_shows_gtids_and_binlog(maria_edge, maria):
    done = maria_edge.command("position", "--json")
    shown = json.loads(done.stdout)

    assert done.returncode == 0, done.stderr
    assert shown["confirmed_gtids"] == maria.execute("select @@gtid_binlog_pos")[0][0]
    # The server may have written more by itself, of no transaction.
    end = int(shown["binlog_end"].rpartition(":")[2])
    assert shown["retained_wal_bytes"] == end - shown["confirmed_offset"]


def test_init_again_changes_nothing_and_adopt_takes_a_position(maria_edge, maria, interconnect):
    with maria_edge.running():
        maria.execute("insert into t values (1, 'a'), (2, 'b')")
        arrive(interconnect, 2)
    before = maria_edge.checkpoint
    assert "Already made" in maria_edge.init()[0]
    assert maria_edge.checkpoint == before
    maria.execute("insert into t values (3, 'c')")

    maria_edge.checkpoint_file.unlink()
    maria_edge.init(Adoption(interconnect.tail))

    with maria_edge.running():
        arrive(interconnect, 3)
    assert ids(interconnect) == [1, 2, 3]


@pytest.mark.parametrize("where", [1, 5000])
def test_adopt_refuses_a_position_of_another_log(maria_edge, interconnect, where):
    maria_edge.checkpoint_file.unlink()
    with pytest.raises(NeedsOperator, match="no transaction begins"):
        maria_edge.init(
            Adoption(interconnect.tail._replace(commit=1 << 32 | where) if interconnect.tail else _at(where))
        )


def _at(offset):
    return Position(7, 1 << 32 | offset, 0)


def test_a_server_with_another_network_card_is_the_same_one(maria_edge, maria, interconnect):
    """M3: MariaDB makes its `server_uid` of the port and of a card's address."""
    with maria_edge.running():
        maria.execute("insert into t values (1, 'a')")
        arrive(interconnect, 1)
    former = maria_edge.checkpoint | {"server": "of another card"}
    maria_edge.checkpoint_file.write_text(json.dumps(former))

    assert "Already made" in maria_edge.init()[0]
    with maria_edge.running():
        maria.execute("insert into t values (2, 'b')")
        arrive(interconnect, 2)
    assert ids(interconnect) == [1, 2]

    maria_edge.checkpoint_file.write_text(json.dumps(former | {"gtids": "0-1-1"}))
    assert "the server is another one" in refused(maria_edge).message


def test_a_source_goes_on_when_a_domain_was_deleted_from_the_log(maria_edges, own_maria, interconnect):
    """M16."""
    edge = maria_edges(own_maria, interconnect.url)
    edge.init()
    with edge.running():
        own_maria.execute("set gtid_domain_id = 7")
        own_maria.execute("insert into t values (1, 'of another domain')")
        own_maria.execute("set gtid_domain_id = 0")
        arrive(interconnect, 1)
        own_maria.execute("flush binary logs")
        newest = own_maria.execute("show master status")[0][0]
        eventually(lambda: edge.checkpoint["file"] == newest, saying="the edge is in the new file")

        def deleted() -> bool:
            own_maria.execute(f"purge binary logs to '{newest}'")
            own_maria.execute("flush binary logs delete_domain_id = (7)")
            return True

        # The server lets go of the former file by itself.
        eventually(deleted, saying="the domain is deleted")
        own_maria.execute("insert into t values (2, 'after it')")
        arrive(interconnect, 2)
    assert "7-" in edge.checkpoint["gtids"]
    with edge.running():
        own_maria.execute("insert into t values (3, 'after the start')")
        arrive(interconnect, 3)
    assert ids(interconnect) == [1, 2, 3]
