"""An edge with default settings stays below 256 MB whatever a MariaDB sends."""

import pytest

from tests.edge.fix_edge import arrive
from tests.integration.edge.test_edge_memory import LIMIT_MEGABYTES, peak

CASES = {
    "a text of 64 MB": ("insert into w values (0, repeat('abcdefgh', 8388608), null)", 1),
    "bytes of 64 MB": ("insert into w values (0, null, repeat('abcdefgh', 8388608))", 1),
    "a transaction of 300 MB": ("insert into w select seq, repeat(md5(seq), 3200), null from seq_1_to_3000", 3000),
}


def send_more_than_memory(edge, database, interconnect, case):
    """Have an edge read a change of a case, with one behind it; what is too large is a dead letter, and the edge stays small."""
    statement, count = CASES[case]
    database.execute("create table w (id int primary key, note longtext, data longblob)")
    database.execute("set global max_allowed_packet = 1073741824")
    database.disconnect()
    edge.start()
    try:
        database.execute(statement)
        database.execute("insert into w values (-1, 'behind it', null)")
        arrive(interconnect, count + 1, seconds=300)
        print(f"{case}: {peak(edge):.0f} MB")
        assert peak(edge) < LIMIT_MEGABYTES
    finally:
        edge.kill()
    assert interconnect.changes[-1]["after"]["note"] == "behind it"
    assert ("too_large" in interconnect.changes[0]) == (count == 1)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_changes_larger_than_memory(maria_edge, maria, interconnect, case):
    send_more_than_memory(maria_edge, maria, interconnect, case)
