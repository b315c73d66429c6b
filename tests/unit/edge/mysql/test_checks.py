"""What a server is asked before its log is read: whether it is still the log that the checkpoint knows."""

import msgspec
import pytest

from edge.mysql.checkpoint import MysqlCheckpoint
from edge.mysql.checks import check_gtids, check_identity
from edge.mysql.errors import NoEvent, running
from headrace.errors import NeedsOperator, NotConnected
from tests.unit.edge.mysql.events import SERVER_UUID

CHECKPOINT = MysqlCheckpoint(
    source="jakarta/bank", stage="made", acknowledged="00000001/0000000700000020/00000000", engine="mysql",
    gtids=f"{SERVER_UUID}:1-9", file="binlog.000007", offset=300, server_id=5, server=SERVER_UUID,
)  # fmt: skip


class Server:
    """A MySQL server that has executed what the checkpoint has, and whose log goes on with some event."""

    is_mariadb = False

    def __init__(self, *events):
        self.events = events

    def value(self, query, *_parameters):
        assert "gtid_subtract" in query or "gtid_owned" in query
        return ""

    def rows(self, query):
        assert query == "show binlog events in 'binlog.000007' from 300 limit 1"
        if self.events == ("none",):
            raise running(1220, "Wrong offset or I/O error", "db:3306", "cdc")
        return [("binlog.000007", 300, kind, 5, 379, said) for kind, said in self.events]


class Promoted(Server):
    """A MySQL server that lacks transactions."""

    owned = ""

    def value(self, query, *parameters):
        if query == "select @@global.gtid_owned":
            return self.owned
        if query == "select gtid_subtract(%s, %s)":
            return "" if parameters == (f"{SERVER_UUID}:8-9", f"{SERVER_UUID}:8:9") else "some"
        assert query == "select gtid_subtract(%s, @@global.gtid_executed)"
        return f"{SERVER_UUID}:8-9"


class Mariadb:
    """A MariaDB server: its name, its number, and what its log and its tables are after."""

    is_mariadb = True

    def __init__(self, name="other", number=5, at_place="0-5-9,7-5-1", reached="0-5-12,7-5-1"):
        self.name, self.number, self.at_place, self.reached = name, number, at_place, reached

    def variable(self, _name):
        return self.name

    def value(self, query, *parameters):
        if "server_id" in query:
            return self.number
        if "gtid_current_pos" in query:
            return self.reached
        if query == "select @@global.gtid_binlog_pos":
            return "0-5-3"
        assert (query, parameters[0]) == ("select binlog_gtid_pos(%s, %s)", "binlog.000007")
        return self.at_place


MARIADB = msgspec.structs.replace(CHECKPOINT, engine="mariadb", gtids="0-5-9,7-5-1", server="MAC-and-port")


@pytest.mark.parametrize(
    "events",
    [(), (("Rotate", "binlog.000008;pos=4"),), (("Gtid", f"SET @@SESSION.GTID_NEXT= '{SERVER_UUID}:10'"),)],
)
def test_log_of_mysql_that_goes_on_after_the_checkpoint_is_taken(events):
    check_gtids(Server(*events), CHECKPOINT)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ("none", "at binlog.000007:300 no event of the binlog begins"),
        (
            ("Gtid", f"SET @@SESSION.GTID_NEXT= '{SERVER_UUID}:4'"),
            f"goes on with GTID {SERVER_UUID}:4, which the checkpoint",
        ),
    ],
)
def test_log_of_mysql_that_was_reset_and_has_grown_again_is_refused(event, said):
    with pytest.raises(NeedsOperator, match=said) as caught:
        check_gtids(Server(event), CHECKPOINT)

    assert not isinstance(caught.value, NoEvent)
    assert "copy the tables again" in caught.value.hint


@pytest.mark.parametrize("offset", [4, 300])
def test_a_server_that_lacks_acknowledged_transactions_is_refused_and_they_are_named(offset):
    """M6: at the first place after `init --adopt`, too."""
    checkpoint = msgspec.structs.replace(CHECKPOINT, offset=offset)
    with pytest.raises(NeedsOperator, match=f"it lacks GTID {SERVER_UUID}:8-9") as caught:
        check_gtids(Promoted(), checkpoint)

    assert "copy the tables again" in caught.value.hint


def test_a_mariadb_that_lacks_acknowledged_transactions_is_refused_and_they_are_named():
    """M6."""
    with pytest.raises(NeedsOperator, match="it lacks GTID 0-5-9"):
        check_gtids(Mariadb(at_place="", reached="0-5-8"), msgspec.structs.replace(MARIADB, offset=4))


def test_a_mariadb_is_known_by_its_data_when_its_network_card_is_another_one():
    """M3: `server_uid` is made of the port and of a card's address."""
    check_identity(Mariadb(), MARIADB)
    check_identity(Mariadb(at_place="0-5-7"), msgspec.structs.replace(MARIADB, offset=4))


@pytest.mark.parametrize(
    "other",
    [
        {"number": 6},
        {"at_place": None},
        {"at_place": "0-5-8"},
        {"at_place": "0-5-9,7-5-1,8-6-1"},
        {"at_place": ""},
    ],
)
def test_another_mariadb_is_refused(other):
    """M3."""
    with pytest.raises(NeedsOperator, match="the server is another one"):
        check_identity(Mariadb(**other), MARIADB)


@pytest.mark.parametrize("other", [{"at_place": "0-6-11"}, {"at_place": "", "reached": "0-5-8"}])
def test_another_mariadb_is_refused_at_the_first_place_of_a_log(other):
    """M3."""
    with pytest.raises(NeedsOperator, match="the server is another one"):
        check_identity(Mariadb(**other), msgspec.structs.replace(MARIADB, offset=4))


def test_a_mariadb_from_whose_log_a_domain_was_deleted_is_taken():
    """M16: FLUSH BINARY LOGS DELETE_DOMAIN_ID=(7)."""
    check_gtids(Mariadb(at_place="0-5-9", reached="0-5-9"), MARIADB)


def test_a_log_that_goes_on_with_a_tagged_transaction_that_the_checkpoint_has_was_reset():
    """M16."""
    checkpoint = msgspec.structs.replace(CHECKPOINT, gtids=f"{SERVER_UUID}:1-9:nightly:1-2")
    next_one = "Gtid_tagged_log_event", f"SET @@SESSION.GTID_NEXT= '{SERVER_UUID}:nightly:{{}}'"
    check_gtids(Server((next_one[0], next_one[1].format(3))), checkpoint)
    with pytest.raises(NeedsOperator, match=f"goes on with GTID {SERVER_UUID}:nightly:2, which the checkpoint"):
        check_gtids(Server((next_one[0], next_one[1].format(2))), checkpoint)


def test_a_server_whose_commits_wait_is_waited_for():
    """Siblings of M4 and M6: the log is sent before a commit is done, for long where it waits for a semi-synchronous replica."""
    server = Promoted()
    server.owned = f"{SERVER_UUID}:8#41:9#42"
    with pytest.raises(NotConnected, match=f"still commits GTID {SERVER_UUID}:8-9"):
        check_gtids(server, CHECKPOINT)

    server.owned = f"{SERVER_UUID}:9#42"
    with pytest.raises(NeedsOperator, match="it lacks GTID"):
        check_gtids(server, CHECKPOINT)


def test_behind_four_gib_of_a_file_the_set_alone_is_compared():
    """M14: places there are no offsets."""
    far = 0xFFFF0005
    check_gtids(Server("none"), msgspec.structs.replace(CHECKPOINT, offset=far))
    check_gtids(Mariadb(at_place="0-5-7"), msgspec.structs.replace(MARIADB, offset=far))
    with pytest.raises(NeedsOperator, match="it lacks GTID 0-5-9"):
        check_gtids(Mariadb(at_place="0-5-7", reached="0-5-8"), msgspec.structs.replace(MARIADB, offset=far))
