"""A transaction that is passed over, by its GTID: followed to its end, whatever its rows are."""

import json
from base64 import b64decode

import pytest

from edge.progress.notes import Passed
from edge.snapshot.table_history import TableHistory
from tests.unit.edge.mysql.events import (
    SERVER_UUID,
    event,
    feed,
    make_decoder,
    mariadb_gtid,
    mysql_gtid,
    payload,
    query,
    rotate,
    rows,
    table_map,
    xid,
)
from tests.unit.edge.mysql.test_decoder import ACCOUNTS, ANA, ID, NAME, transaction

BROKEN = rows(30, 2, b"\0\1")


def session(folder, gtid=f"{SERVER_UUID}:2", engine="mysql", **options):
    history = TableHistory(folder, "jakarta/bank")
    history.begin(1, 0)
    decoder, batcher = make_decoder(engine, history=history, passed={gtid: Passed(gtid, "ani@edge", 17)}, **options)
    feed(decoder, rotate())
    return decoder, batcher, history


def passed_message(batcher):
    values = [json.loads(value) for value in batcher.values]
    (message,) = [value for value in values if value.get("op") == "m"]
    return message, json.loads(b64decode(message["message"]["content"]))


@pytest.mark.parametrize(
    ("body", "tables"),
    [
        ([query("BEGIN", 350), ACCOUNTS, BROKEN, xid(390)], ["bank.accounts"]),
        ([query("BEGIN", 350), ACCOUNTS, BROKEN, event(199, b"new"), xid(390)], ["bank.accounts", "bank.other"]),
        ([query("BEGIN", 350), ACCOUNTS, BROKEN, query("ROLLBACK TO s", 380), query("COMMIT", 390)], ["bank.accounts"]),
        ([query("call p()", 390)], ["bank.accounts", "bank.other"]),
        ([query("alter table accounts drop partition p", 390)], ["bank.accounts"]),
        ([payload([query("BEGIN", 0), ACCOUNTS, BROKEN, xid(0)], 390)], ["bank.accounts"]),
        ([query("BEGIN", 350), table_map(ID, NAME, table="x", database="mysql"), BROKEN, xid(390)], []),
    ],
)
def test_exactly_that_transaction_is_passed_and_a_message_says_so(tmp_path, body, tables):
    made, batcher, history = session(tmp_path)
    other = table_map(ID, NAME, table="other", id_=30)
    feed(made, *transaction(other, rows(30, 2, ANA, id_=30), ACCOUNTS, rows(30, 2, ANA), start=100, end=290))

    feed(made, mysql_gtid(2, 300), *body)

    message, content = passed_message(batcher)
    assert not made.in_transaction
    assert made.passed == 7 << 32 | 390
    assert [mark.group.text for mark in made.marks] == [f"{SERVER_UUID}:1", f"{SERVER_UUID}:2"]
    assert content == {"transaction": f"{SERVER_UUID}:2", "by": "ani@edge", "at_ms": 17, "tables": tables}
    assert message["source"]["position"] == "00000001/000000070000012c/00000000"
    assert (message["message"]["prefix"], message["transaction"]["last"]) == ("headrace.passed", True)
    assert list(history.warnings) == tables

    count = len(batcher.values)
    feed(made, *transaction(ACCOUNTS, rows(30, 2, ANA), number=3, start=400, end=490))
    schemas = [json.loads(value).get("rewritten") for value in batcher.values[count:-1]]
    assert schemas == ([[f"transaction {SERVER_UUID}:2 was passed over by ani@edge"]] if tables else [])
    assert json.loads(batcher.values[-1])["after"] == {"id": 1, "name": "Ana"}


@pytest.mark.parametrize("standalone", [True, False])
def test_of_mariadb_as_well(tmp_path, standalone):
    made, batcher, _ = session(tmp_path, "0-5-9", "mariadb")
    end = [query("drop table accounts", 390)] if standalone else [ACCOUNTS, BROKEN, xid(390)]

    feed(made, mariadb_gtid(9, 300, standalone=standalone), *end)

    assert passed_message(batcher)[1]["tables"] == ["bank.accounts"]
    assert made.passed == 7 << 32 | 390


def test_a_log_that_is_read_again_gives_the_same(tmp_path):
    def read():
        made, batcher, history = session(tmp_path)
        feed(made, *transaction(ACCOUNTS, rows(30, 2, ANA), start=100, end=290))
        feed(made, mysql_gtid(2, 300), query("BEGIN", 350), ACCOUNTS, BROKEN, xid(390))
        feed(made, *transaction(ACCOUNTS, rows(30, 2, ANA), number=3, start=400, end=490))
        history.close()
        return list(batcher.values)

    assert read() == read()
