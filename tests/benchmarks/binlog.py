"""Binlog to Kafka, committed and acknowledged, beside what only reads and frames the same binlog, and beside `mysql-replication`.

The workload is that of tests/benchmarks/orders.py: a table of eight columns, transactions of 40 inserts, 8 updates and 2 deletes,
once by statements of many rows and once with a statement for each row. A run's time begins when its process is started, and ends
when the checkpoint has the backlog's last GTID, which it has only when Kafka has committed everything.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from infra.local import files
from infra.local.kafka import Kafka
from infra.local.mariadb import Mariadb
from infra.local.server import free_port
from tests.benchmarks.results import Result, compared
from tests.benchmarks.usage import usage
from tests.end_to_end.pipeline import command, headrace
from tests.end_to_end.supervised import Supervised
from tests.rules.waiting import eventually

_STREAM, _RUNS = "binlog", 3
SETTINGS = {"sync-binlog": 0, "innodb-flush-log-at-trx-commit": 0, "max-binlog-size": 1 << 30}
#: The peer decodes so slowly that it gets a part of the backlog.
_PEER_CHANGES = 50_000

_TABLE = """
create table {name} (
    id bigint primary key, customer_id int not null, sku varchar(40) not null, quantity int not null,
    price decimal(12, 2) not null, status varchar(20) not null, note text, placed_at timestamp(6) not null
) default character set utf8mb4;
"""
_ROW = """base + seq, (base + seq) % 9973, concat('SKU-', lpad(((base + seq) * 7919) % 100000, 6, '0')), 1 + seq % 9,
    ((base + seq) % 100000) / 100, 'placed', case seq % 10 when 0 then null
    when 1 then concat('said "leave it at the door"\\n', n)
    else concat('to be delivered between nine and five, ring twice, floor ', seq) end, now(6)"""
_MANY = f"""
    insert into many select {_ROW} from seq_0_to_39;
    update many set status = 'shipped', quantity = quantity + 1
    where id in (select base - 40 * (n % 5) + 2 * seq + 1 from seq_1_to_8);
    delete from many where id in (base + 2, base + 38);
"""
_SINGLE = f"""
    set seq = 0; while seq < 40 do insert into single values ({_ROW}); set seq = seq + 1; end while;
    set seq = 1; while seq <= 8 do
        update single set status = 'shipped', quantity = quantity + 1 where id = base - 40 * (n % 5) + 2 * seq + 1;
        set seq = seq + 1;
    end while;
    delete from single where id = base + 2; delete from single where id = base + 38;
"""
_FILL = """
delimiter //
create procedure fill_{name}(first int, last int) begin
    declare n int default first; declare base bigint; {declare}
    while n <= last do set base = n * 40; start transaction; {body} commit; set n = n + 1; end while;
end//
delimiter ;
"""


class _Place(NamedTuple):
    """Where a backlog begins and ends, as GTID sets."""

    start: str
    end: str


def measure(console: Console, folder: Path, kafka: Kafka, changes: int) -> list[Result]:
    """Return changes per second of both kinds of statements, what the edge costs, and how the peers do."""
    server = Mariadb(folder / "mariadb", settings=SETTINGS)
    try:
        server.start()
        server.sql("create database bench")
        return [
            result
            for name, title in (("many", "statements of many rows"), ("single", "a statement for each row"))
            for result in _measured(console, folder, server, kafka, name, title, changes)
        ]
    finally:
        server.delete()


def _measured(
    console: Console, folder: Path, server: Mariadb, kafka: Kafka, name: str, title: str, changes: int
) -> list[Result]:
    create(server, name)
    port = free_port()
    sources = [f"bench/{name}{run}" for run in range(_RUNS)]
    bridge_file = files.bridge(
        folder / f"bridge-{name}.toml", bootstrap=kafka.bootstrap, listen=f"127.0.0.1:{port}", sources=sources,
        stream=f"{_STREAM}-{name}",
    )  # fmt: skip
    headrace("bridge", "init", "--config", str(bridge_file))
    edges = [edge(folder, server, source, 7000 + run, port) for run, source in enumerate(sources)]
    start = server.sql("select @@gtid_binlog_pos")
    with console.status(f"writing a backlog of {changes:,} changes by {title}"):
        place = _Place(start, fill(server, name, changes))
    bridge = Supervised("bridge", command("bridge", "run", "--config", str(bridge_file)), log=folder / "bridge.log")
    bridge.start()
    ours, framed, costs = [], [], []
    try:
        for capture, checkpoint in edges:
            framed.append(changes / _peer("frame", server, place))
            ours.append(changes / drain(capture, checkpoint, place.end))
            costs.append(usage(capture.pid).cpu_seconds / changes * 1e6)
            console.print(f"{title}: headrace {ours[-1]:,.0f} changes/s, framing alone {framed[-1]:,.0f}")
            assert capture.stop() == 0, capture.tail()
    finally:
        for part in (*(capture for capture, _ in edges), bridge):
            part.stop()
    middle = sorted(ours)[_RUNS // 2]
    theirs = _PEER_CHANGES / _peer("pymysqlreplication", server, place)
    console.print(f"{title}: mysql-replication {theirs:,.0f} changes/s, decoded and dropped")
    return [
        compared(f"binlog to Kafka, {title}, beside framing alone", middle, "changes/s", sorted(framed)[_RUNS // 2]),
        compared(f"binlog to Kafka, {title}, beside mysql-replication", middle, "changes/s", theirs),
        Result(f"edge, CPU, {title}", round(sorted(costs)[_RUNS // 2], 2), "s per million changes"),
    ]


def create(server: Mariadb, name: str) -> None:
    """Make a table, `many` or `single`, and what fills it."""
    body = _MANY if name == "many" else _SINGLE
    # A variable of that name would stand before the sequence's column.
    declare = "declare seq int;" if name == "single" else ""
    server.sql(_TABLE.format(name=name) + _FILL.format(name=name, body=body, declare=declare), "bench")


def fill(server: Mariadb, name: str, changes: int) -> str:
    """Write a backlog of changes; return the GTID set at its end."""
    server.sql(f"call fill_{name}(5, {4 + changes // 50})", "bench")
    return server.sql("select @@gtid_binlog_pos")


def edge(folder: Path, server: Mariadb, source: str, server_id: int, port: int) -> tuple[Supervised, Path]:
    """Return an edge that begins here and is not started, and its checkpoint."""
    name = source.replace("/", "-")
    path = folder / f"edge-{name}.toml"
    files.mariadb_edge(
        path,
        source=source,
        mariadb=server,
        database="bench",
        interconnect=f"amqp://127.0.0.1:{port}",
        server_id=server_id,
    )
    headrace("edge", "init", "--config", str(path))
    log = folder / f"edge-{name}.log"
    supervised = Supervised(f"edge {name}", command("edge", "run", "--config", str(path)), log=log)
    return supervised, folder / f"state-{path.stem}" / "checkpoint.json"


def drain(capture: Supervised, checkpoint: Path, end: str) -> float:
    """Return the seconds until the edge's checkpoint has everything."""
    started = time.monotonic()
    capture.start()

    def done() -> bool:
        capture.check()
        return bool(json.loads(checkpoint.read_text())["gtids"] == end)

    eventually(done, 600, every=0.02, saying="the backlog is acknowledged")
    return time.monotonic() - started


def _peer(what: str, server: Mariadb, place: _Place) -> float:
    """Return the seconds that a process of its own takes to read the backlog."""
    program = [sys.executable, "-m", "tests.benchmarks.binlog_peer", what, str(server.port), place.start, place.end]
    started = time.monotonic()
    done = subprocess.run([*program, str(_PEER_CHANGES)], check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return time.monotonic() - started
