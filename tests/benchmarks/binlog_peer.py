"""What reads a binlog beside Headrace: framing alone, or `mysql-replication`; a process of its own for each run."""

import select
import sys
import warnings

from edge.mysql import events
from edge.mysql.replication import ReplicationStream
from headrace.configuration.edge import Mysql


def frame(port: int, start: str, end: str) -> None:
    """Read and frame the binlog up to a GTID, checksums verified, and decode nothing else."""
    stream = ReplicationStream(Mysql(host="127.0.0.1", port=port, user="root", server_id=7100), "bench/frame")
    stream.start_mariadb(start)
    wanted, last, done = int(end.rpartition("-")[2]), 0, False

    def feed(found: bytes, _end: int, _now_ms: int) -> None:
        nonlocal last, done
        if found[4] == events.MARIADB_GTID:
            last = int.from_bytes(found[19:27], "little")
        elif found[4] == events.XID and last == wanted:
            done = True

    poll = select.poll()
    poll.register(stream.fileno(), select.POLLIN)
    while not done:
        if not stream.read(feed, 0):
            poll.poll(100)
    stream.close()


def pymysqlreplication(port: int, start: str, changes: int) -> None:
    """Decode so many changes with `mysql-replication`, and drop them."""
    warnings.simplefilter("ignore")
    from pymysqlreplication import BinLogStreamReader  # noqa: PLC0415 - a driver of its own, for this peer only.
    from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent  # noqa: PLC0415

    reader = BinLogStreamReader(
        connection_settings={"host": "127.0.0.1", "port": port, "user": "root", "passwd": ""},
        server_id=7101,
        blocking=True,
        resume_stream=True,
        is_mariadb=True,
        auto_position=start,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
    )
    read = 0
    for each in reader:
        read += len(each.rows)
        if read >= changes:
            break
    reader.close()


if __name__ == "__main__":
    what, port, start, end, changes = sys.argv[1:]
    if what == "frame":
        frame(int(port), start, end)
    else:
        pymysqlreplication(int(port), start, int(changes))
