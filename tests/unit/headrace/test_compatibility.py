"""What former releases wrote is read; what a newer one wrote is refused by its number, and nothing of it is changed (O12)."""

import json
import sqlite3
from pathlib import Path

import pytest
import zstandard

from bridge.model.chain import parse
from edge.mysql.checkpoint import MysqlCheckpoint
from edge.mysql.snapshot_decoder import SnapshotOrdinals
from edge.postgres.checkpoint import PostgresCheckpoint
from edge.progress.checkpoint import State
from edge.progress.spool import Spool
from edge.snapshot.store import SnapshotStore
from headrace.batch import encode
from headrace.errors import NeedsOperator
from headrace.formats import BATCH, CHECKPOINT
from headrace.position import Position
from tests.compatibility.reading import ENGINES, RELEASES, SOURCE, batches, position_text, state

KINDS = {"postgresql": PostgresCheckpoint, "mariadb": MysqlCheckpoint}
NEWEST = RELEASES[-1]
PLACES = {"postgresql": 0x1A00230, "mariadb": 7 << 32 | 3500}


@pytest.fixture(params=[(release, engine) for release in RELEASES for engine in ENGINES], ids="-".join)
def written(request, tmp_path):
    release, engine = request.param
    return release, engine, state(release, engine, tmp_path)


def test_batches_of_former_releases_are_read(written):
    release, engine, _ = written
    first, second, third = (sent.decoded() for sent in batches(release, engine))

    assert first.starts_epoch
    assert (second.follows, third.follows) == (first.last, second.last)
    values = [json.loads(value) for value in first.values + second.values + third.values if value is not None]
    assert [value.get("op", "schema") for value in values] == ["schema", *("cc" if len(values) > 4 else "c"), "u", "d"]
    assert values[1]["after"] == {"id": 1, "name": "Ana"}
    assert [str(position) for position in second.positions()] == [json.loads(second.values[0])["source"]["position"]]


def test_checkpoint_and_spool_of_former_releases_are_read(written):
    release, engine, folder = written
    sent = batches(release, engine)
    checkpoint = State(folder, KINDS[engine]).read(SOURCE)
    spool = Spool(folder, SOURCE, 1 << 20)
    try:
        spool.open(checkpoint.position, checkpoint.promised, checkpoint.confirmed)
        kept = spool.read(spool.first_row, 1 << 20, checkpoint.position)
    finally:
        spool.close()

    assert (checkpoint.stage, checkpoint.confirmed) == ("made", PLACES[engine])
    assert checkpoint.acknowledged == sent[0].properties["last"]
    assert [(one.batch.properties, one.batch.body) for one in kept] == [(it.properties, it.body) for it in sent[1:]]


def test_snapshots_of_former_releases_go_on(written):
    release, engine, folder = written
    snapshots = SnapshotStore(folder, SOURCE)
    copied, waits = snapshots.plan().tables
    ((_, request),) = snapshots.waiting()

    assert (copied.name, copied.cursor, copied.again, copied.rows) == ("public.accounts", ["41"], [["7"]], 41)
    assert (copied.log_table is not None) == (release != "0.1" and engine == "postgresql")
    assert (waits.where, waits.replace, request.tables, request.where) == ("id > 10", True, ["public.loans"], "id < 5")
    if engine == "mariadb":
        # Behind all that the former process had taken there.
        assert SnapshotOrdinals(folder).take(PLACES[engine], 1) >= 10


@pytest.mark.parametrize("release", RELEASES)
def test_committed_positions_of_former_releases_are_read(release):
    result = parse(position_text(release))

    assert result.position == Position(0x692010C0, 0x1A00000, 1)
    assert result.source == ("" if release == "0.1" else SOURCE)


@pytest.mark.parametrize("engine", ENGINES)
def test_this_release_writes_what_its_folder_holds(engine, tmp_path):
    """Whoever changes a format gives it a new version, and keeps reading this one."""
    folder = state(NEWEST, engine, tmp_path)
    files = {name: (folder / name).read_bytes() for name in ("checkpoint.json", "snapshot.json")}
    states, snapshots = State(folder, KINDS[engine]), SnapshotStore(folder, SOURCE)
    states.write(states.read(SOURCE))
    snapshots.save(snapshots.plan())

    assert {name: (folder / name).read_bytes() for name in files} == files
    for sent in batches(NEWEST, engine):
        properties, body = encode(sent.decoded())
        assert properties == sent.properties
        assert zstandard.decompress(body) == zstandard.decompress(sent.body)


def newer(path: Path) -> None:
    """Make a file one of the next version, with a field that this release does not know."""
    result = json.loads(path.read_text())
    path.write_text(json.dumps(result | {"version": result.get("version", 1) + 1, "unknown": {}}))


def read_place(folder: Path) -> None:
    SnapshotOrdinals(folder)


@pytest.mark.parametrize(
    ("name", "read", "versions"),
    [
        ("checkpoint.json", lambda folder: State(folder, MysqlCheckpoint).read(SOURCE), "version 2 .* reads version 1"),
        ("snapshot.json", lambda folder: SnapshotStore(folder, SOURCE).plan(), "version 3 .* reads versions 1 to 2"),
        ("snapshot-place.json", read_place, "version 2 .* reads version 1"),
        (
            "snapshot-requests/*",
            lambda folder: SnapshotStore(folder, SOURCE).waiting(),
            "version 2 .* reads version 1",
        ),
    ],
)
def test_files_of_a_newer_release_are_no_damage_and_stay(name, read, versions, tmp_path):
    """O12: they were reported as damaged, with the advice to move them away, or removed."""
    folder = state(NEWEST, "mariadb", tmp_path)
    (path,) = folder.glob(name)
    newer(path)
    before = path.read_bytes()

    with pytest.raises(NeedsOperator, match=f"{path} has {versions}") as raised:
        read(folder)

    assert "newer release wrote it" in raised.value.hint
    assert "docs/upgrading.md" in raised.value.hint
    assert path.read_bytes() == before


@pytest.mark.parametrize("is_needed", [True, False])
def test_spool_of_a_newer_release_is_no_damage_and_stays(is_needed, tmp_path):
    folder = state(NEWEST, "postgresql", tmp_path)
    checkpoint = State(folder, PostgresCheckpoint).read(SOURCE)
    connection = sqlite3.connect(folder / "spool.sqlite")
    connection.execute("alter table about rename column source to name")
    connection.execute("update about set version = 2")
    connection.commit()
    connection.close()
    spool = Spool(folder, SOURCE, 1 << 20)

    for read in (
        lambda: spool.open(checkpoint.position, checkpoint.promised if is_needed else None, 1),
        spool.promised,
    ):
        with pytest.raises(NeedsOperator, match=r"spool\.sqlite has version 2 .* reads version 1"):
            read()
    spool.close()
    assert (folder / "spool.sqlite").exists()


def test_checkpoint_of_a_release_that_is_too_old_names_the_way(monkeypatch, tmp_path):
    monkeypatch.setattr("edge.progress.checkpoint.CHECKPOINT", CHECKPOINT._replace(version=4, oldest=3))
    folder = state(NEWEST, "postgresql", tmp_path)

    with pytest.raises(NeedsOperator, match=r"version 1 .* reads versions 3 to 4") as raised:
        State(folder, PostgresCheckpoint).read(SOURCE)
    assert "one minor release at a time" in raised.value.hint


def test_position_of_a_newer_release_is_named_and_its_group_is_not_deleted():
    with pytest.raises(NeedsOperator, match=r"bank\[0\] has version 4 .* reads versions 1 to 3") as raised:
        parse("4 whatever it holds", "bank[0]")
    assert "Do not delete the group" in raised.value.hint


def test_batch_of_a_newer_edge_names_what_to_upgrade():
    properties, body = encode(batches(NEWEST, "postgresql")[0].decoded())
    sent = batches(NEWEST, "postgresql")[0]._replace(
        properties=properties | {"version": BATCH.version + 1}, body=body[:-3]
    )

    with pytest.raises(
        NeedsOperator, match=r"a batch of jakarta/bank has version 5 .* reads versions 1 to 4"
    ) as raised:
        sent.decoded()
    assert "upgrade the bridge" in raised.value.hint
