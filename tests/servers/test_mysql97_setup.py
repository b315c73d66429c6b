"""Setting up a source at a real MySQL 9.7: while it is written to, and what is refused."""

import re
import threading
from contextlib import ExitStack, closing, contextmanager

from tests.fix_edge import ids
from tests.waiting import eventually

_WRITERS, _INITS = 8, 4


@contextmanager
def written_to(database):
    """Let several connections commit rows of `t`, each one after the other; yield what counts the rows."""
    ended = threading.Event()
    written = [0] * _WRITERS

    def write(number: int) -> None:
        with closing(database.connect()) as connection, connection.cursor() as cursor:
            while not ended.is_set():
                cursor.execute("insert into t values (%s, 'x')", [number + _WRITERS * written[number]])
                written[number] += 1

    writers = [threading.Thread(target=write, args=(number,)) for number in range(_WRITERS)]
    with ExitStack() as stack:
        for writer in writers:
            writer.start()
            stack.callback(writer.join)
        stack.callback(ended.set)
        eventually(lambda: all(written), saying="every connection writes")
        yield lambda: sum(written)


def test_a_source_that_is_set_up_while_eight_connections_write_starts_and_misses_nothing(
    maria_edges, mysql97, interconnects
):
    """M4: a transaction that is committing is in the log and in no GTID set yet."""
    sides = [interconnects() for _ in range(_INITS)]
    edges = [maria_edges(mysql97, side.url) for side in sides]
    for edge, side in zip(edges, sides, strict=True):
        with written_to(mysql97) as rows:
            before = rows()
            edge.init()
            eventually(lambda before=before: rows() > before + 50, saying="the writers go on")
        at_start = transactions(edge)
        with edge.running():
            last = mysql97.execute("select max(id) from t")[0][0] + 1
            mysql97.execute("insert into t values (%s, 'last')", [last])
            eventually(lambda side=side, last=last: last in ids(side), saying="the last row arrives")
        # Each transaction that is not in the set of the start has one row.
        assert len(set(ids(side))) == len(ids(side)) == transactions(edge) - at_start > 50
        mysql97.execute("delete from t")


def transactions(edge) -> int:
    """Return how many transactions the checkpoint's set has."""
    ranges = re.findall(r":(\d+)(?:-(\d+))?", edge.checkpoint["gtids"])
    return sum(int(last or first) - int(first) + 1 for first, last in ranges)
