"""An edge with default settings stays below 256 MB whatever a MariaDB sends."""

import pytest

from tests.edge.fix_edge import arrive
from tests.integration.edge.test_edge_memory import LIMIT_MEGABYTES, peak

CASES = {
    "a text of 64 MB": ("insert into w values (0, repeat('abcdefgh', 8388608), null)", 1),
    "bytes of 64 MB": ("insert into w values (0, null, repeat('abcdefgh', 8388608))", 1),
    "a transaction of 300 MB": ("insert into w select seq, repeat(md5(seq), 3200), null from seq_1_to_3000", 3000),
}


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_changes_larger_than_memory(maria_edge, maria, interconnect, case):
    statement, count = CASES[case]
    maria.execute("create table w (id int primary key, note longtext, data longblob)")
    maria.execute("set global max_allowed_packet = 1073741824")
    maria.disconnect()
    maria_edge.start()
    try:
        maria.execute(statement)
        arrive(interconnect, count, seconds=300)
        print(f"{case}: {peak(maria_edge):.0f} MB")
        assert peak(maria_edge) < LIMIT_MEGABYTES
    finally:
        maria_edge.kill()
