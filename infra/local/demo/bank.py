"""A region of the demo on PostgreSQL, and PostgreSQL's own pgbench writing to it.

A region of the demo on MariaDB, and customers who order from shops.
"""

import random
import re
import subprocess
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql

from edge.mysql.checkpoint import MysqlCheckpoint
from edge.progress.checkpoint import State
from headrace.configuration.edge import EdgeFile
from headrace.configuration.load import load
from headrace.errors import NeedsOperator
from infra.local import files
from infra.local.demo.region import Region
from infra.local.mariadb import Mariadb
from infra.local.postgres import Postgres

_FOREVER = 3600


class Bank(Region):
    """A bank: TPC-B's accounts, tellers, branches and history."""

    database = "bank"
    workload = "pgbench's TPC-B"

    def __init__(self, name: str, folder: Path, postgres: Postgres, *, interconnect: str, detached: bool) -> None:
        super().__init__(name, folder, detached=detached)
        self.postgres = postgres
        files.edge(
            self.edge_file,
            source=self.source,
            postgres=postgres,
            database=self.database,
            interconnect=interconnect,
        )
        self._pgbench: subprocess.Popen[str] | None = None

    def make_tables(self) -> None:
        """Make the database with TPC-B's empty tables."""
        self.postgres.create_database(self.database)
        self._initialise("dtp", 1)
        # It has no key: without this the edge leaves it out, and with it the lake has its rows.
        self.postgres.psql("ALTER TABLE pgbench_history REPLICA IDENTITY FULL", self.database)

    def fill(self, scale: int) -> None:
        """Make 100,000 accounts for each unit of scale."""
        self._initialise("g", scale)

    def write(self, *, clients: int, seconds: int, rate: int) -> None:
        """Start TPC-B transactions; returns at once."""
        self._pgbench = subprocess.Popen(
            [
                self.postgres.bin("pgbench"),
                *("--no-vacuum", f"--client={clients}", f"--time={seconds}", f"--rate={rate}"),
                self.postgres.dsn(self.database),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def transactions(self) -> tuple[int, float]:
        """Wait for pgbench to end; return how many transactions it committed, and in how many seconds."""
        assert self._pgbench is not None
        output, _ = self._pgbench.communicate(timeout=_FOREVER)
        count = re.search(r"number of transactions actually processed: (\d+)", output)
        rate = re.search(r"tps = ([\d.]+)", output)
        if count is None or rate is None:
            raise NeedsOperator(f"pgbench failed in {self.name}: {output.strip()[-300:]}", hint="Run the demo again.")
        return int(count[1]), int(count[1]) / float(rate[1])

    def stop_writing(self) -> None:
        """End pgbench, if it is at work."""
        if self._pgbench is not None and self._pgbench.poll() is None:
            self._pgbench.kill()
            self._pgbench.communicate()

    def log_position(self) -> str:
        """Return the end of the source's log, an LSN."""
        return self.postgres.psql("SELECT pg_current_wal_insert_lsn()", self.database)

    def confirmed(self) -> str:
        """Return the LSN up to which the source may discard its log: all before it is acknowledged."""
        return self.postgres.psql(
            "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'headrace'", self.database
        )

    def has_confirmed(self, position: str) -> bool:
        """Return whether all of the log before an LSN is acknowledged."""
        behind = self.postgres.psql(f"SELECT '{position}'::pg_lsn - '{self.confirmed()}'::pg_lsn", self.database)
        return int(behind) <= 0

    def _initialise(self, steps: str, scale: int) -> None:
        done = subprocess.run(
            [self.postgres.bin("pgbench"), "-i", "-q", "-I", steps, "-s", str(scale), self.postgres.dsn(self.database)],
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise NeedsOperator(
                f"pgbench could not fill {self.name}: {done.stderr.strip()[-300:]}", hint="Run the demo again."
            )


#: What each wallet holds at first, and how many there are for each unit of scale.
OPENING, _WALLETS = 500, 10_000
#: Of so many orders one is called off.
_CALLED_OFF = 10
_DEADLOCK = 1213
_TABLES = """
CREATE DATABASE pay;
USE pay;
CREATE TABLE wallets (
    id int UNSIGNED PRIMARY KEY, owner varchar(60) NOT NULL, kind enum('customer', 'shop') NOT NULL,
    balance decimal(12,2) NOT NULL
);
CREATE TABLE orders (
    id bigint UNSIGNED AUTO_INCREMENT PRIMARY KEY, buyer int UNSIGNED NOT NULL, seller int UNSIGNED NOT NULL,
    amount decimal(12,2) NOT NULL, placed_at timestamp(6) NOT NULL DEFAULT current_timestamp(6)
);
CREATE TABLE order_lines (
    order_id bigint UNSIGNED, line tinyint UNSIGNED, product varchar(40) NOT NULL, amount decimal(12,2) NOT NULL,
    PRIMARY KEY (order_id, line)
);
"""
_PRODUCTS = ("kopi luwak", "batik", "teh botol", "晴雨伞", "sepeda", "jam tangan")


class Pay(Region):
    """A payment house: wallets, orders and their lines."""

    database = "pay"
    workload = "orders paid from wallets"

    def __init__(self, name: str, folder: Path, mariadb: Mariadb, *, interconnect: str, detached: bool) -> None:
        super().__init__(name, folder, detached=detached)
        self.mariadb = mariadb
        files.mariadb_edge(
            self.edge_file, source=self.source, mariadb=mariadb, database=self.database, interconnect=interconnect
        )
        self._wallets = _WALLETS
        self._writers: list[threading.Thread] = []
        self._ended = threading.Event()
        self._committed: list[int] = []
        self._failures: list[Exception] = []
        self._seconds = 0.0

    def make_tables(self) -> None:
        """Make the database with empty tables."""
        self.mariadb.sql(_TABLES)

    def fill(self, scale: int) -> None:
        """Make 10,000 wallets for each unit of scale; one in ten is a shop's."""
        self._wallets = _WALLETS * scale
        self.mariadb.sql(
            "INSERT INTO wallets SELECT seq, concat('owner ', seq), if(seq % 10 = 0, 'shop', 'customer'), "  # noqa: S608 - numbers.
            f"{OPENING} FROM seq_1_to_{self._wallets}",
            self.database,
        )

    def write(self, *, clients: int, seconds: int, rate: int) -> None:
        """Start to order; returns at once."""
        self._seconds, self._committed = seconds, []
        self._writers = [
            threading.Thread(target=self._order, args=(number, seconds, rate / clients), daemon=True)
            for number in range(clients)
        ]
        for writer in self._writers:
            writer.start()

    def transactions(self) -> tuple[int, float]:
        """Wait for the customers to end; return how many transactions they committed, and in how many seconds."""
        for writer in self._writers:
            writer.join()
        if self._failures:
            raise NeedsOperator(f"ordering failed in {self.name}: {self._failures[0]}", hint="Run the demo again.")
        return sum(self._committed), self._seconds

    def stop_writing(self) -> None:
        """End the customers, if they are at work."""
        self._ended.set()
        for writer in self._writers:
            writer.join()

    def log_position(self) -> str:
        """Return the end of the binlog, file and offset."""
        file, offset, *_ = self.mariadb.sql("SHOW MASTER STATUS").split("\t")
        return f"{file}:{offset}"

    def confirmed(self) -> str:
        """Return file and offset before which all is acknowledged: the server keeps its binlog by age."""
        config = load(self.edge_file, EdgeFile)
        checkpoint = State(config.resolve(config.state.folder), MysqlCheckpoint).read(self.source)
        return f"{checkpoint.file}:{checkpoint.offset}" if checkpoint else "nothing"

    def has_confirmed(self, position: str) -> bool:
        """Return whether all of the binlog before a place is acknowledged."""
        return _place(self.confirmed()) >= _place(position)

    def _order(self, number: int, seconds: float, rate: float) -> None:
        chance = random.Random(number)  # noqa: S311 - a workload.
        committed = 0
        try:
            with closing(self._connect()) as connection, connection.cursor() as cursor:
                began = time.monotonic()
                while (due := committed / rate) < seconds:
                    if self._ended.wait(max(0.0, began + due - time.monotonic())):
                        break
                    try:
                        if committed % _CALLED_OFF == _CALLED_OFF - 1:
                            self._call_off(cursor, chance)
                        else:
                            self._place_order(cursor, chance)
                        connection.commit()
                    except pymysql.OperationalError as error:
                        if error.args[0] != _DEADLOCK:
                            raise
                        connection.rollback()
                        continue
                    committed += 1
        except pymysql.MySQLError as error:
            self._failures.append(error)
        self._committed.append(committed)

    def _place_order(self, cursor: Any, chance: random.Random) -> None:
        buyer = chance.randrange(self._wallets // 10) * 10 + chance.randrange(1, 10)
        seller = chance.randrange(1, self._wallets // 10 + 1) * 10
        lines = [(chance.choice(_PRODUCTS), chance.randrange(100, 5000)) for _ in range(chance.randrange(1, 4))]
        cents = sum(amount for _, amount in lines)
        cursor.execute("INSERT INTO orders (buyer, seller, amount) VALUES (%s, %s, %s / 100)", (buyer, seller, cents))
        order = cursor.lastrowid
        cursor.executemany(
            "INSERT INTO order_lines VALUES (%s, %s, %s, %s / 100)",
            [(order, line, product, amount) for line, (product, amount) in enumerate(lines, 1)],
        )
        _move(cursor, buyer, seller, cents)

    def _call_off(self, cursor: Any, chance: random.Random) -> None:
        cursor.execute("SELECT max(id) FROM orders")
        ((newest,),) = cursor.fetchall()
        cursor.execute(
            "SELECT id, buyer, seller, cast(amount * 100 AS int) FROM orders WHERE id <= %s ORDER BY id DESC LIMIT 1 FOR UPDATE",
            (chance.randrange(1, (newest or 1) + 1),),
        )
        for order, buyer, seller, cents in cursor.fetchall():
            cursor.execute("DELETE FROM order_lines WHERE order_id = %s", (order,))
            cursor.execute("DELETE FROM orders WHERE id = %s", (order,))
            _move(cursor, seller, buyer, cents)

    def _connect(self) -> Any:
        return pymysql.connect(
            host="127.0.0.1", port=self.mariadb.port, user="root", database=self.database, charset="utf8mb4",
            init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", ssl_disabled=True,
        )  # fmt: skip


def _move(cursor: Any, giver: int, taker: int, cents: int) -> None:
    # In the order of the wallets, so that no two wait for each other.
    for wallet, amount in sorted(((giver, -cents), (taker, cents))):
        cursor.execute("UPDATE wallets SET balance = balance + %s / 100 WHERE id = %s", (amount, wallet))


def _place(text: str) -> tuple[str, int]:
    file, _, offset = text.rpartition(":")
    return file, int(offset) if offset.isdigit() else 0
