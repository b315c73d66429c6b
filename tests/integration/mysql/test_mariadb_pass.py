"""One transaction that an operator passes over, at a real MariaDB."""

from tests.edge.passing import RECORDS, pass_over_one


def test_one_transaction_is_passed_by_its_gtid_and_its_table_needs_a_copy(maria_edges, maria, interconnect):
    edge = maria_edges(maria, interconnect.url, rest=f"[records]\n{RECORDS}")
    edge.init()
    maria.execute("alter table t modify note longtext")

    pass_over_one(edge, maria, interconnect, "--gtid", "0-1-1", f"{maria.name}.t")
