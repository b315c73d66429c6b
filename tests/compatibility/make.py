"""Writes what this release writes into a folder: `python -m tests.compatibility.make tests/compatibility/0.2`.

Run once for each minor release, and again only where a format gets a new version before that release. For each engine: the state
folder of an edge that was killed while it spooled and copied, and its batches as they were sent. For the bridge: the text of
a committed position. The folder 0.1 was written by the same steps at commit 2540f17, with its names of modules.
"""

import json
import shutil
import sys
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path

import msgspec

from bridge.model.chain import position_text
from edge.mysql.checkpoint import MysqlCheckpoint
from edge.mysql.snapshot_decoder import SnapshotOrdinals
from edge.postgres.checkpoint import PostgresCheckpoint, format_lsn
from edge.progress.checkpoint import Checkpoint, State
from edge.progress.spool import Spool
from edge.records.batcher import Batcher, SealedBatch
from edge.snapshot.plan import LogTable, Plan, TablePlan
from edge.snapshot.store import Request, SnapshotStore
from headrace.batch import CONTENT_ENCODING, CONTENT_TYPE
from headrace.position import Position
from tests.unit.edge.mysql import events
from tests.unit.edge.postgres import messages
from tests.unit.edge.postgres.messages import INT8, Column

SOURCE = "jakarta/bank"
_PUT_AT = 1_769_850_901.5


def postgresql_batches() -> list[SealedBatch]:
    """Return three batches of a PostgreSQL source, from the start of its epoch."""
    log = messages.Log(tombstones=True)
    batches = []
    for number, changes in enumerate(_postgresql_changes()):
        commit = messages.COMMIT + number * 0x100
        log.transaction(*changes, commit_lsn=commit, end=commit + 0x30)
        batches += log.sealed()
    return batches


def postgresql(folder: Path) -> None:
    """Write the folder of a PostgreSQL source: of its three batches the first is acknowledged and two are spooled."""
    batches = postgresql_batches()
    checkpoint = PostgresCheckpoint(
        source=SOURCE,
        stage="made",
        acknowledged=str(batches[0].last),
        spooled=str(batches[2].last),
        confirmed_lsn=format_lsn(batches[2].confirm),
        system_identifier="7312345678901234567",
        timeline=2,
        database="bank",
        slot="headrace",
        publication="headrace",
        publication_oid=16501,
        guarded=True,
    )
    _write(folder, PostgresCheckpoint, checkpoint, batches, LogTable(oid=messages.OID, key=("id",)))


def mariadb_batches() -> list[SealedBatch]:
    """Return three batches of a MariaDB source, from the start of its epoch."""
    decoder, batcher = events.make_decoder("mariadb")
    table = events.table_map(
        events.Column("id", 3, unsigned=False), events.Column("name", 15, b"\x28\x00", collation=255)
    )
    ana, budi = b"\0" + b"\1\0\0\0" + b"\3Ana", b"\0" + b"\1\0\0\0" + b"\4Budi"
    batches = []
    events.feed(decoder, events.rotate())
    for number, rows in enumerate(((23, ana), (24, ana + budi), (25, budi)), start=1):
        start = number * 1000
        kind, images = rows
        events.feed(
            decoder,
            events.mariadb_gtid(number, start),
            table,
            events.rows(kind, 2, images),
            events.xid(start + 500),
        )
        batches += _sealed(batcher)
    return batches


def mariadb(folder: Path) -> None:
    """Write the same of a MariaDB source."""
    batches = mariadb_batches()
    checkpoint = MysqlCheckpoint(
        source=SOURCE,
        stage="made",
        engine="mariadb",
        acknowledged=str(batches[0].last),
        spooled=str(batches[2].last),
        gtids="0-5-3",
        file="binlog.000007",
        offset=3500,
        server_id=5,
        server="c2b7a3a6-0000-11f0-8de9-0242ac120002",
    )
    _write(folder, MysqlCheckpoint, checkpoint, batches, None)
    SnapshotOrdinals(folder / "state").take(7 << 32 | 3500, 10)


def _postgresql_changes() -> Iterable[list[bytes]]:
    table = messages.relation(Column("id", INT8, key=True), Column("name"))
    yield [table, messages.insert(1, "Ana"), messages.insert(2, 'said "halo"')]
    yield [messages.update((1, "Budi"))]
    yield [messages.delete(key=(1, None))]


def _sealed(batcher: Batcher) -> list[SealedBatch]:
    last = batcher.seal()
    return [*batcher.take(), *([last] if last else [])]


def _write(
    folder: Path, kind: type[Checkpoint], checkpoint: Checkpoint, batches: list[SealedBatch], table: LogTable | None
) -> None:
    state = folder / "state"
    state.mkdir(parents=True)
    State(state, kind).write(checkpoint)
    spool = Spool(state, SOURCE, 1 << 20)
    spool.open(batches[0].last, None, 0)
    spool.append([(batch, batch.confirm, _PUT_AT) for batch in batches[1:]])
    spool.close()
    copied = TablePlan(
        name="public.accounts", state="running", log_table=table, cursor=["41"], again=[["7"]], rows=41, chunks=2,
        estimate=100, asked_ms=messages.NOW_MS, started_ms=messages.NOW_MS,
    )  # fmt: skip
    waits = TablePlan(name="public.entries", where="id > 10", replace=True, asked_ms=messages.NOW_MS)
    snapshots = SnapshotStore(state, SOURCE)
    snapshots.save(Plan(source=SOURCE, epoch=batches[0].last.epoch, tables=[copied, waits]))
    snapshots.request(Request(kind="snapshot", tables=["public.loans"], where="id < 5"))
    sent = [
        {
            "properties": batch.properties,
            "content_type": CONTENT_TYPE,
            "content_encoding": CONTENT_ENCODING,
            "body": b64encode(batch.body).decode(),
        }
        for batch in batches
    ]
    (folder / "batches.json").write_bytes(msgspec.json.format(msgspec.json.encode(sent)) + b"\n")


def main() -> None:
    """Write everything."""
    folder = Path(sys.argv[1])
    if folder.exists():
        shutil.rmtree(folder)
    for engine in (postgresql, mariadb):
        engine(folder / engine.__name__)
    text = position_text(SOURCE, Position(messages.EPOCH, messages.COMMIT, 1), "bridge/hq-1/4711/hq-1")
    (folder / "position.txt").write_text(json.dumps(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
