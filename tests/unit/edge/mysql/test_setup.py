"""Which events of a binlog, as the server lists them, concern the tables that an edge captures."""

import pytest

from edge.mysql.coverage import Chosen
from edge.mysql.setup import concerned
from edge.records.column_policy import Policy
from headrace.configuration.edge import Policy as Section

CHOSEN = Chosen(["bank"], [], Policy(Section()))


@pytest.mark.parametrize(
    ("kind", "said", "what"),
    [
        ("Table_map", "table_id: 33 (bank.orders)", "a change of bank.orders"),
        ("Table_map", "table_id: 33 (bank.a.b)", "a change of bank.a.b"),
        ("Table_map", "table_id: 33 (shop.orders)", ""),
        ("Table_map", "of a form that is not known", "a change"),
        ("Query", "BEGIN", ""),
        ("Query", "use `bank`; truncate table orders", "a statement (TRUNCATE TABLE orders)"),
        ("Query", "use `shop`; truncate table orders", ""),
        ("Query", "use `shop`; drop table bank.orders", "a statement (DROP TABLE bank.orders)"),
        ("Query", "use `bank`; rename table orders to former", "a statement (RENAME TABLE orders TO former)"),
        ("Query", "use `bank`; alter table orders drop partition p", "a statement (ALTER TABLE orders)"),
        ("Query", "use `shop`; alter table orders drop partition p", ""),
        ("Query", "use `bank`; create table more (id int)", ""),
        ("Transaction_payload", "compression='ZSTD'", "a compressed transaction"),
        ("Xid", "COMMIT /* xid=23 */", ""),
        ("Gtid", "BEGIN GTID 0-1-5", ""),
    ],
)
def test_what_an_event_changes_of_captured_tables(kind, said, what):
    assert concerned(kind, said, CHOSEN) == what
