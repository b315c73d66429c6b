"""Which folders VACUUM has to look at: those with an old file that the newest version does not need."""

import json
import os
from datetime import timedelta

import pytest

from spark_jobs.maintenance import vacuum

KEEP = timedelta(days=7)
DAY = 24 * 60 * 60
SCHEMA = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"], "writerFeatures": []}
#: A vector that is in a file of its own: `deletion_vector_<uuid>.bin`.
VECTOR = {"storageType": "u", "pathOrInlineDv": "^-aqEH.-t@S}K{vb[*k^", "sizeInBytes": 40, "offset": 4}
VECTOR_FILE = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"


@pytest.fixture
def table(tmp_path):
    """Return a function that makes a table's folder, of commits and of files with their ages in days."""
    folder = tmp_path / "table"

    def make(*commits, **files):
        log = folder / "_delta_log"
        log.mkdir(parents=True)
        first = [{"protocol": SCHEMA}, {"metaData": {"schemaString": "{}", "partitionColumns": []}}]
        for version, actions in enumerate(([*first, *commits[0]], *commits[1:])):
            text = "\n".join(json.dumps(action) for action in actions)
            (log / f"{version:020d}.json").write_text(text, encoding="utf-8")
        for name, days in files.items():
            file = folder / name.replace("__", ".")
            file.write_bytes(b"x")
            at = file.stat().st_mtime - days * DAY
            os.utime(file, (at, at))
        return folder

    return make


def add(path, **more):
    return {"add": {"path": path, **more}}


def test_files_that_are_young_or_needed_stay_unseen(table):
    # given an old file that is needed, and one that was replaced yesterday
    folder = table([add("old.parquet"), add("new.parquet")], [{"remove": {"path": "new.parquet"}}], old__parquet=30)
    (folder / "new.parquet").write_bytes(b"x")
    # then
    assert not vacuum.may_remove(folder, KEEP)
    # and with nothing kept it would be found
    assert vacuum.may_remove(folder, timedelta(0))


@pytest.mark.parametrize("left", ["replaced__parquet", "unknown__parquet"])
def test_an_old_file_that_is_not_needed_is_found(table, left):
    folder = table([add("replaced.parquet")], [{"remove": {"path": "replaced.parquet"}}], **{left: 8})
    assert vacuum.may_remove(folder, KEEP)


def test_an_old_file_of_deleted_rows_is_needed_while_its_file_is(table):
    commits = [add("a.parquet", deletionVector=VECTOR)]
    names = {"a__parquet": 30, VECTOR_FILE.replace(".", "__"): 30}
    folder = table(commits, **names)
    assert not vacuum.may_remove(folder, KEEP)
    # when the rows come back
    vectored = {"remove": {"path": "a.parquet", "deletionVector": VECTOR}}
    text = "\n".join(map(json.dumps, (vectored, add("a.parquet"))))
    (folder / "_delta_log" / f"{1:020d}.json").write_text(text, encoding="utf-8")
    assert vacuum.may_remove(folder, KEEP)


def test_what_killed_processes_have_left_of_a_log_goes_after_a_day(table):
    """A commit's text has the least and largest values of its files; nothing of Delta's removes what has no name yet."""
    log = table([]) / "_delta_log"
    name = "d2c639aa-8816-431a-aaf6-d3fe2512ff61.tmp"
    left = [
        f".{1:020d}.json.{name}",
        f".{1:020d}.crc.{name}",
        f"..{1:020d}.crc.{name}.crc",
        f"._last_checkpoint.{name}",
    ]
    for file in (*left, f".{1:020d}.crc.crc", "mine.tmp"):
        (log / file).touch()
        os.utime(log / file, (0, 0))
    (log / f".{2:020d}.json.{name}").touch()

    vacuum.tidy(log)

    names = {file.name for file in log.iterdir()}
    assert names == {f"{0:020d}.json", f".{1:020d}.crc.crc", "mine.tmp", f".{2:020d}.json.{name}"}


def test_a_log_that_is_gone_or_cannot_be_tidied_is_no_failure(tmp_path, caplog):
    """A load that goes on maintains its tables beside others, and ended with any error of the file system."""
    vacuum.tidy(tmp_path / "none" / "_delta_log")

    assert "stays: No such file or directory" in caplog.text


def test_sums_beside_commits_go_after_a_day_but_for_those_of_the_newest_versions(table):
    log = table([]) / "_delta_log"
    old = [f"{version:020d}" for version in range(40)]
    for version in old:
        for name in (f"{version}.json", f".{version}.json.crc", f"{version}.crc", f".{version}.crc.crc"):
            (log / name).touch()
            os.utime(log / name, (0, 0))
    other = [f"{30:020d}.checkpoint.parquet", f".{30:020d}.checkpoint.parquet.crc", "_last_checkpoint"]
    for name in other:
        (log / name).touch()
        os.utime(log / name, (0, 0))
    (log / f"{7:020d}.crc").touch()

    vacuum.tidy(log)

    names = {file.name for file in log.iterdir()}
    assert {f"{version}.json" for version in old} | set(other) <= names
    assert f"{28:020d}.crc" not in names
    assert f"{29:020d}.crc" in names
    assert f"{7:020d}.crc" in names
    assert len(names) == 40 + len(other) + 1 + 3 * 11


def test_a_file_that_another_maintenance_removes_meanwhile_is_no_failure(table):
    folder = table([add("a.parquet")], a__parquet=30)
    # In the folder's listing, and gone when it is looked at.
    (folder / "b.parquet").symlink_to(folder / "gone.parquet")
    assert not vacuum.may_remove(folder, KEEP)


def test_a_folder_may_have_any_name(table):
    folder = table([add("a.parquet")], a__parquet=30)
    odd = folder.parent / "100%25 #1?"
    odd.mkdir()
    assert not vacuum.may_remove(folder.rename(odd / "table"), KEEP)


def test_what_cannot_be_known_without_spark_is_left_to_it(table):
    # given a log that is damaged
    folder = table([add("a.parquet")], a__parquet=30)
    log = folder / "_delta_log" / f"{0:020d}.json"
    log.write_text('{"add": ', encoding="utf-8")
    assert vacuum.may_remove(folder, KEEP)
    # and folders within the table
    log.write_text("", encoding="utf-8")
    (folder / "a.parquet").unlink()
    assert not vacuum.may_remove(folder, KEEP)
    (folder / "_change_data").mkdir()
    assert vacuum.may_remove(folder, KEEP)
