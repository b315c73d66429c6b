"""The stream of a real MySQL 9.7."""

import pytest

from tests.edge.fix_edge import arrive
from tests.edge.undecodable import go_on_behind_what_cannot_be_decoded
from tests.integration.mysql.test_mariadb_memory import send_more_than_memory


def test_changes_of_every_kind_arrive(mysql97_edge, mysql97, interconnect):
    with mysql97_edge.running():
        mysql97.execute("insert into t values (1, 'Ana'), (2, 'Budi')")
        mysql97.execute("update t set note = 'Citra' where id = 2")
        mysql97.execute("delete from t where id = 1")
        mysql97.execute("truncate table t")
        arrive(interconnect, 5)

    assert [change["op"] for change in interconnect.changes] == ["c", "c", "u", "d", "t"]
    assert interconnect.changes[2]["after"] == {"id": 2, "note": "Citra"}


def test_a_value_that_cannot_be_decoded_concerns_its_row_alone(mysql97_edge, mysql97, interconnect):
    """M2."""
    go_on_behind_what_cannot_be_decoded(mysql97_edge, mysql97, interconnect)


@pytest.mark.parametrize("case", ["a text of 64 MB", "bytes of 64 MB"])
def test_a_value_that_is_larger_than_memory_concerns_its_row_alone(mysql97_edge, mysql97, interconnect, case):
    """G7: an edge of a MySQL too stays below 256 MB."""
    send_more_than_memory(mysql97_edge, mysql97, interconnect, case)
