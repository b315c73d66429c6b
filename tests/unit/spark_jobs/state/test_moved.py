"""Which tables went on since a load, by the notes of publications alone."""

import json

import pytest

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError
from spark_jobs import session, table_command
from spark_jobs.state import delta_log, log_files, publication
from spark_jobs.state.publication import read_moved
from spark_jobs.state.published_rows import Published, Table
from tests.unit.headrace.test_configuration import LAKE


def note(number, *tables, maintenance=False):
    moved = {table: {"version": number, "history": None} for table in tables}
    return {"load": number, "positions": {"a/b": str(number)}, "moved": moved, "maintenance": maintenance}


#: Newest first, back to one of an earlier release.
NOTES = [note(4, "t"), note(3, "u", maintenance=True), note(2, "u", "v"), {"load": 1, "positions": {}}]


@pytest.mark.parametrize(
    ("since", "maintenance", "loads"),
    [
        (None, False, {"t": 4}),
        (3, False, {"t": 4}),
        (1, False, {"t": 4, "u": 2, "v": 2}),
        (1, True, {"t": 4, "u": 3, "v": 2}),
        (4, True, {}),
        # Of a lake that was made again, whose loads begin with 1 again.
        (9, False, {"t": 4}),
    ],
)
def test_tables_are_named_once_with_the_newest_publication_that_moved_them(since, maintenance, loads):
    newest, tables = read_moved(NOTES, since, maintenance=maintenance)
    assert newest == 4
    assert {name: table["load"] for name, table in tables.items()} == loads
    assert all(table["positions"] == {"a/b": str(table["load"])} for table in tables.values())


def test_a_stopped_table_has_gone_on_nowhere_and_is_known_by_its_version():
    # given a stopped table whose files maintenance put together: those of its former version will be removed
    former = Table(table="t", version=3, problem="no such type")
    state = Published(stream="bank", load=2, tables={"t": Table(table="t", version=4, problem="no such type")})
    moved = publication._moved(Published(stream="bank", load=1, tables={"t": former}), state, state.tables)
    # when
    notes = [{"load": 2, "positions": {}, "moved": moved, "maintenance": False}]
    # then
    assert read_moved(notes, 1) == (2, {})
    assert read_moved(notes, 1, maintenance=True)[1]["t"]["version"] == 4


def test_nothing_moved_where_nothing_was_published():
    assert read_moved([], 3) == (0, {})


def test_a_lake_without_a_metastore_is_not_registered(tmp_path):
    (tmp_path / "lake.toml").write_text(LAKE)
    assert load(tmp_path / "lake.toml", LakeFile).metastore is None
    with pytest.raises(ConfigurationError, match=r"no \[metastore\]"):
        table_command.register.callback((), str(tmp_path / "lake.toml"), dry_run=False, as_json=False)


def test_a_store_that_is_not_read_without_spark_is_asked_by_it(tmp_path, monkeypatch, capsys):
    (tmp_path / "lake.toml").write_text(LAKE)

    def unreadable(_):
        raise log_files.Unreadable("the object store cannot be read without Spark")

    monkeypatch.setattr(log_files, "of_lake", unreadable)
    monkeypatch.setattr(session, "session", lambda *_, **__: None)
    info = {"userMetadata": delta_log.write(publication.NOTE, stream="bank", **note(7, "t"))}
    monkeypatch.setattr(delta_log, "commits", lambda *_: iter([(7, info)]))
    # when
    table_command.changed.callback("bank", str(tmp_path / "lake.toml"), since=None)
    # then
    assert json.loads(capsys.readouterr().out)["tables"]["t"]["version"] == 7
