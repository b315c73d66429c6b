"""Copies of tables without a key at a real MySQL 9.7, which does not report the place of a snapshot (Q3)."""

from tests.contract.copied import Source
from tests.contract.test_keyless_snapshots import Writers, equal, open_transactions


def test_writers_beside_a_copy_leave_each_row_as_often_as_it_is_there(mysql97_edge, mysql97, interconnect):
    source = Source(mysql97_edge, mysql97, mysql97.name)
    rows = ", ".join(f"({2 + i % 900}, {i % 5 if i % 7 else 'null'})" for i in range(12_000))
    source.run("create table w (id int, n int)", f"insert into w values {rows}")
    with source.edge.running():
        with Writers(source):
            source.asks("w")
            table = source.ends("w")["w"]
        equal(source, interconnect)
        again = open_transactions(source)
    assert (table.state, again) == ("done", 0)
