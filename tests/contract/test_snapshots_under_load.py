"""Snapshots beside writers, and killed again and again, at every engine: nothing is lost and nothing becomes older."""

import random

import pytest

from tests.contract.copied import Writers
from tests.edge.fix_edge import arrive
from tests.integration.edge.snapshots import folder, held, records
from tests.rules.waiting import eventually

WRITES = [
    "update w set n = n + 1 where id = %(key)s",
    "update w set id = %(other)s where id = %(key)s",
    "update w set id = %(key)s where id = %(other)s",
    "delete from w where id = %(key)s",
    "insert into w values (%(key)s, 1)",
]


def writers(source, rows, count=3):
    """Return writers to the table `w`, each to rows of its own."""

    def write(cursor, number, chance):
        key, other = (chance.randrange(number, rows, count) for _ in range(2))
        in_two = source.is_mariadb and not chance.randrange(3)
        if in_two:
            cursor.execute(f"xa start 'w{number}'")
        decision = "commit" if chance.randrange(4) else "rollback"
        try:
            cursor.execute(chance.choice(WRITES), {"key": key, "other": 10 * rows + other})
        except Exception as error:
            # The key is taken.
            if "uplicate" not in str(error):
                raise
            decision = "rollback"
        if in_two:
            for step in ("end", "prepare", decision):
                cursor.execute(f"xa {step} 'w{number}'")

    return Writers(source, write, count)


def test_writers_never_make_a_copied_row_older_than_the_log(source, interconnect):
    source.fill("w", 3000)
    with source.edge.running():
        with writers(source, 3000):
            source.asks("w")
            table = source.ends("w")["w"]
        wanted = source.stored("w")
        eventually(
            lambda: held(interconnect, "w") == wanted,
            saying="the consumer holds what the database holds",
            progress=lambda: len(interconnect.records),
        )
    assert table.state == "done"


def test_killed_again_and_again_under_load_it_loses_nothing(source, interconnect):
    source.fill("w", 20_000)
    edge, chance = source.edge, random.Random(5)
    source.asks("w")
    with writers(source, 20_000, 1):
        for _ in range(4):
            edge.start()
            # Chunks that are cut, sent, accepted, acknowledged: a kill may meet each.
            wanted = len(interconnect.records) + chance.randrange(1, 4_000)
            eventually(lambda wanted=wanted: len(interconnect.records) >= wanted, saying=f"{wanted} records arrive")
            edge.kill()
        edge.start()
        table = source.ends("w")["w"]
    wanted = source.stored("w")
    eventually(lambda: held(interconnect, "w") == wanted, saying="the consumer holds what the database holds")
    assert edge.terminate() == 0
    assert table.state == "done"
    # What was on its way at a kill, or acknowledged right before it, is read again: not everything by each of them.
    assert len(records(interconnect, "w", "r")) < 5 * 20_000


def has_ended(source, table):
    return not folder(source.edge).waiting() and not source.plan(table).unfinished


@pytest.mark.parametrize("source", ["postgresql", pytest.param("mariadb", marks=pytest.mark.long)], indirect=True)
def test_killed_again_and_again_beside_a_source_that_rests_every_row_arrives(source, interconnect):
    source.fill("w", 20_000)
    edge, chance = source.edge, random.Random(5)
    edge.start()
    arrive(interconnect, 20_000)
    source.asks("w")
    for _ in range(3):
        wanted = len(interconnect.records) + chance.randrange(1, 4_000)
        # Fewer come where the copy has ended by then.
        eventually(
            lambda wanted=wanted: len(interconnect.records) >= wanted or has_ended(source, "w"),
            saying=f"{wanted} records arrive",
        )
        edge.kill()
        edge.start()
    table = source.ends("w")["w"]
    assert edge.terminate() == 0

    assert table.state == "done"
    assert {key["id"] for key, _ in records(interconnect, "w", "r")} == set(range(1, 20_001))
