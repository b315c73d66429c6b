"""Steps of a test with a binlog that is reset while the edge is down, the same at MariaDB and MySQL."""

from tests.edge.fix_edge import arrive
from tests.edge.under_test import refused
from tests.rules.waiting import eventually


def reset_and_write_as_before(edge, database, interconnect, *, reset: str, status: str, writes: int) -> None:
    """Have the new log end where the former one did, after so many writes; the edge refuses it by when its file was begun."""
    database.execute(reset)
    edge.init()
    if writes:
        with edge.running():
            _write(database, range(writes))
            arrive(interconnect, writes)
            eventually(lambda: edge.checkpoint["acknowledged"] == interconnect.changes[-1]["source"]["position"])
    ends = database.execute(status)[0][:2]
    former = edge.checkpoint["file_created"]
    eventually(lambda: database.execute("select unix_timestamp()")[0][0] > former, saying="another second")
    database.execute(reset)
    _write(database, range(writes, 2 * writes))
    assert database.execute(status)[0][:2] == ends
    database.execute("insert into t values (9, 'missed')")

    assert "was begun at" in refused(edge).message
    assert len(interconnect.changes) == writes


def _write(database, numbers):
    for number in numbers:
        database.execute(f"insert into t values ({number}, 'a')")
