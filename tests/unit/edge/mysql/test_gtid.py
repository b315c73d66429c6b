"""GTID sets: as the servers write them, and as they are sent; tags and deleted domains included (M16)."""

import pytest

from edge.mysql.checkpoint import MariadbGtids, MysqlGtids, listed_gtid
from edge.mysql.events import Group
from headrace.errors import CorruptInput

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "5e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.mark.parametrize(
    "text",
    ["", f"{A}:1-9", f"{A}:1-9:12,{B}:4", f"{A}:1-3:heartbeat:1-2:5:nightly:1", f"{A}:heartbeat:7,{B}:1:x_1:2-4"],
)
def test_a_set_is_read_and_written_as_the_server_writes_it(text):
    assert str(MysqlGtids.parse(text)) == text


def test_ranges_and_tags_in_any_order_are_one_set():
    found = MysqlGtids.parse(f"{A}:X:3,\n{A.upper()}:2:1:x:1-2")

    assert str(found) == f"{A}:1-2:x:1-3"
    assert found.has(Group(0, f"{A}:x", 3))
    assert not found.has(Group(0, A, 3))
    assert str(found.with_group(Group(0, f"{A}:x", 4))) == f"{A}:1-2:x:1-4"
    assert found.covers(MysqlGtids.parse(f"{A}:x:2"))
    assert not found.covers(MysqlGtids.parse(f"{A}:y:2"))


@pytest.mark.parametrize("text", [A, f"{A}:", f"{A}:x", f"{A}:1-2:x", f"{A}:9x:1", f"{A}:{'x' * 33}:1", "0-1-2"])
def test_what_is_no_set_is_refused(text):
    with pytest.raises(CorruptInput, match="is no GTID set"):
        MysqlGtids.parse(text)


def test_without_tags_a_set_is_sent_as_every_server_reads_it():
    whole = bytes.fromhex(A.replace("-", ""))
    assert MysqlGtids.parse(f"{A}:1-9").encoded() == (
        (1).to_bytes(8, "little") + whole + b"".join(part.to_bytes(8, "little") for part in (1, 1, 10))
    )


def test_with_tags_each_origin_is_sent_with_its_own():
    whole = bytes.fromhex(A.replace("-", ""))
    assert MysqlGtids.parse(f"{A}:1-9:tag:5").encoded() == (
        b"\x01\x02\x00\x00\x00\x00\x00\x01"
        + whole + b"\x00" + b"".join(part.to_bytes(8, "little") for part in (1, 1, 10))
        + whole + b"\x06tag" + b"".join(part.to_bytes(8, "little") for part in (1, 5, 6))
    )  # fmt: skip


@pytest.mark.parametrize(
    ("left", "expected"),
    [("0-1-9,5-1-2", True), ("0-1-9", True), ("5-1-2", True), ("0-1-8", False), ("0-1-9,6-1-1", False), ("", False)],
)
def test_domains_may_be_deleted_from_a_log_and_nothing_else(left, expected):
    assert MariadbGtids.parse(left).is_left_of(MariadbGtids.parse("0-1-9,5-1-2")) is expected


def test_a_log_without_any_transaction_is_that_of_an_empty_set():
    assert MariadbGtids.parse("").is_left_of(MariadbGtids.parse(""))
    assert not MariadbGtids.parse("").is_left_of(MysqlGtids.parse(""))


def test_what_another_server_lacks_is_the_last_of_each_domain_that_it_has():
    known = MariadbGtids.parse("0-1-9,5-1-2,7-1-1")
    assert known.missing_in(MariadbGtids.parse("0-2-8,5-1-3")) == "0-1-9"
    assert known.missing_in(MariadbGtids.parse("0-1-9,5-1-2,7-1-1")) == ""
    assert str(MariadbGtids.parse("0-1-9,5-1-2").joined(MariadbGtids.parse("0-2-8,5-1-3,7-1-1"))) == "0-1-9,5-1-3,7-1-1"


@pytest.mark.parametrize(
    ("kind", "info", "expected"),
    [
        ("Gtid", f"SET @@SESSION.GTID_NEXT= '{A}:7'", f"{A}:7"),
        ("Gtid_tagged_log_event", f"SET @@SESSION.GTID_NEXT= '{A}:rds:7'", f"{A}:rds:7"),
        ("Gtid", "BEGIN GTID 0-1-7 cid=22", "0-1-7"),
        ("Gtid", "XA START X'78',X'',1 GTID 3-1-7", "3-1-7"),
        ("Gtid_list", "[0-1-7]", None),
        ("Query", f"select '{A}:7'", None),
    ],
)
def test_an_event_that_begins_a_transaction_shows_its_gtid(kind, info, expected):
    found = listed_gtid(kind, info)
    assert (None if found is None else str(found)) == expected
