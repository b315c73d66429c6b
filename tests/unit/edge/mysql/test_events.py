"""M16: the event of a tagged GTID, as a MySQL 9.7.4 wrote it."""

import random

import pytest

from edge.mysql.checkpoint import MysqlGtids
from edge.mysql.events import HEADER_SIZE, Group, tagged_group

UUID = "e9acaa93-e806-11f1-b992-02fc00000001"
#: `e9acaa93-e806-11f1-b992-02fc00000001:rds:2`, committed at 1795525325205624 microseconds.
BODY = bytes.fromhex(
    "027400000002a503b102a9024d02a1030c22c503e502490204f103000000020408060672647308080a100c7f51381a4c0561061081041283120b"
)


def event(body):
    return bytes(HEADER_SIZE) + body


def test_the_transaction_is_of_its_servers_tag():
    group, committed = tagged_group(event(BODY), HEADER_SIZE + len(BODY))

    assert group == Group(0, f"{UUID}:rds", 2)
    assert group.text == f"{UUID}:rds:2"
    assert str(MysqlGtids.parse(f"{UUID}:1-9:rds:1").with_group(group)) == f"{UUID}:1-9:rds:1-2"
    assert committed == int.from_bytes(bytes.fromhex("51381a4c056106"), "little")


def test_numbers_of_any_size_are_read():
    # The greatest number, behind a byte of ones.
    large = ((1 << 63) - 1) << 1
    body = BODY.replace(bytes.fromhex("0408"), b"\x04\xff" + large.to_bytes(8, "little"), 1)
    body = body[:1] + bytes([len(body) << 1]) + body[2:]

    assert tagged_group(event(body), HEADER_SIZE + len(body))[0].number == (1 << 63) - 1


@pytest.mark.parametrize("length", range(len(BODY)))
def test_an_event_that_is_cut_short_is_an_error(length):
    with pytest.raises((ValueError, IndexError)):
        tagged_group(event(BODY[:length]), HEADER_SIZE + length)


def test_damage_is_an_error_or_another_transaction():
    chance = random.Random(16)
    for _ in range(2000):
        body = bytearray(BODY)
        body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
        try:
            group, _ = tagged_group(event(bytes(body)), HEADER_SIZE + len(body))
        except (ValueError, IndexError):
            continue
        assert isinstance(group, Group)
