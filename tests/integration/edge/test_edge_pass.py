"""One transaction that an operator passes over, at a real PostgreSQL."""

from tests.edge.passing import RECORDS, pass_over_one


def test_one_transaction_is_passed_by_its_lsn_and_its_table_needs_a_copy(edges, database, interconnect):
    database.execute("create table t (id int primary key, note text)")
    # With headers, which the message has too.
    edge = edges(database, interconnect.url, more=f"[records]\n{RECORDS}\ncloudevents = true")
    edge.init()

    pass_over_one(edge, database, interconnect, "--lsn", "0/1", "public.t")
