"""Snapshots beside writers, and killed again and again, at every engine: nothing is lost and nothing becomes older."""

import random
import threading
from contextlib import closing

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


class Writers:
    """Write to the table `w` until they are stopped, each to rows of its own."""

    def __init__(self, source, rows, count=3):
        self._source, self._rows, self._stop = source, rows, threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(number, count)) for number in range(count)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _write(self, number, count):
        chance, offset = random.Random(number), 10 * self._rows
        with closing(self._source.database.connect()) as connection, connection.cursor() as cursor:
            # Slower than the edge reads, which may share this process.
            while not self._stop.wait(0.003):
                key, other = (chance.randrange(number, self._rows, count) for _ in range(2))
                in_two = self._source.is_mariadb and not chance.randrange(3)
                if in_two:
                    cursor.execute(f"xa start 'w{number}'")
                decision = "commit" if chance.randrange(4) else "rollback"
                try:
                    cursor.execute(chance.choice(WRITES), {"key": key, "other": offset + other})
                except Exception as error:
                    # The key is taken.
                    if "uplicate" not in str(error):
                        raise
                    decision = "rollback"
                if in_two:
                    for step in ("end", "prepare", decision):
                        cursor.execute(f"xa {step} 'w{number}'")


def test_writers_never_make_a_copied_row_older_than_the_log(source, interconnect):
    source.fill("w", 3000)
    with source.edge.running():
        with Writers(source, 3000):
            source.asks("w")
            table = source.ends("w")["w"]
        wanted = source.stored("w")
        eventually(lambda: held(interconnect, "w") == wanted, saying="the consumer holds what the database holds")
    assert table.state == "done"


def test_killed_again_and_again_under_load_it_loses_nothing(source, interconnect):
    source.fill("w", 20_000)
    edge, chance = source.edge, random.Random(5)
    source.asks("w")
    with Writers(source, 20_000, 1):
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
