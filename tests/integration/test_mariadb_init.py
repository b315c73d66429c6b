"""A MariaDB source is initialised once, or adopted at a position that its log has; `position` shows where it is."""

import json

import pytest

from edge.commands.initialise import Adoption
from headrace.errors import NeedsOperator
from headrace.position import Position
from tests.fix_edge import arrive, ids


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
