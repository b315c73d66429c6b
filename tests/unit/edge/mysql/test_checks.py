"""What a server is asked before its log is read: whether it is still the log that the checkpoint knows."""

import pytest

from edge.mysql.checkpoint import MysqlCheckpoint
from edge.mysql.checks import check_gtids
from edge.mysql.errors import NoEvent, running
from headrace.errors import NeedsOperator
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

    def value(self, _query, *_parameters):
        return 1

    def rows(self, query):
        assert query == "show binlog events in 'binlog.000007' from 300 limit 1"
        if self.events == ("none",):
            raise running(1220, "Wrong offset or I/O error", "db:3306", "cdc")
        return [("binlog.000007", 300, kind, 5, 379, said) for kind, said in self.events]


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
