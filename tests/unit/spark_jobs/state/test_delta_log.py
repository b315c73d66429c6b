"""The note in a table's newest commit is found without Spark."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.errors import NeedsOperator
from spark_jobs.state import delta_log


def commit(folder, version, **info):
    log = folder / "_delta_log"
    log.mkdir(exist_ok=True)
    lines = [{"commitInfo": info}, {"add": {"path": 'a"commitInfo"b'}}]
    (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, lines)))


def test_newest_note_of_the_kind_is_found_behind_other_commits(tmp_path):
    # given
    commit(tmp_path, 0, userMetadata=delta_log.write("bronze", offsets={"0": 1}))
    commit(tmp_path, 1, userMetadata=delta_log.write("bronze", offsets={"0": 2}))
    commit(tmp_path, 2, userMetadata=delta_log.write("silver", positions={}))
    commit(tmp_path, 3, userMetadata="somebody's own words")
    commit(tmp_path, 4, operation="OPTIMIZE")
    # then
    assert delta_log.local_note(str(tmp_path), "bronze")[1]["offsets"] == {"0": 2}


def test_damaged_commit_is_named_with_a_remedy(tmp_path):
    commit(tmp_path, 0, userMetadata=delta_log.write("bronze", offsets={"0": 1}))
    file = tmp_path / "_delta_log" / f"{0:020d}.json"
    whole = file.read_bytes()
    for length in (1, 20, len(whole) - 3):
        file.write_bytes(whole[:length])
        with pytest.raises(NeedsOperator, match="missing or damaged") as raised:
            delta_log.local_note(str(tmp_path), "bronze")
        assert str(file) in raised.value.message
        assert "headrace lake replay" in raised.value.hint


def test_commits_of_others_are_known_from_ours_and_from_maintenance():
    assert delta_log.is_foreign({"operation": "RESTORE"})
    assert delta_log.is_foreign({"operation": "DELETE", "userMetadata": "mine"})
    assert not delta_log.is_foreign({"operation": "MERGE", "userMetadata": delta_log.write("silver")})
    assert not delta_log.is_foreign({"operation": "OPTIMIZE"})


def test_no_note_is_none(tmp_path):
    assert delta_log.local_note(str(tmp_path), "bronze") is None
    commit(tmp_path, 0, userMetadata='["headrace"]')
    assert delta_log.local_note(str(tmp_path), "bronze") is None


def test_what_commits_added_is_in_themselves(tmp_path, monkeypatch):
    monkeypatch.setattr(delta_log.storage, "is_local", lambda *_: True)
    # given
    for version, (rows, size) in enumerate([(5, 500), (3, 300), (2, 200), (7, 700)]):
        commit(tmp_path, version, operationMetrics={"numOutputRows": str(rows), "numOutputBytes": str(size)})
    commit(tmp_path, 4, operation="OPTIMIZE", operationMetrics={"numAddedFiles": "1"})
    # then
    assert delta_log.count_added(None, str(tmp_path), 0, 2) == (5, 500)
    assert delta_log.count_added(None, str(tmp_path), 0, 4) == (12, 1200)
    assert delta_log.count_added(None, str(tmp_path), 4, 4) == (0, 0)
    assert delta_log.count_added(None, str(tmp_path), -1, 4) == (17, 1700)
    # and nothing is said of what the log has no more
    (tmp_path / "_delta_log" / f"{1:020d}.json").unlink()
    assert delta_log.count_added(None, str(tmp_path), 0, 4) is None
    assert delta_log.count_added(None, str(tmp_path), 1, 4) == (9, 900)


def test_l12_newest_commits_are_read_without_the_rest_of_the_log(tmp_path, monkeypatch):
    # given a long log with a checkpoint
    for version in range(200):
        commit(tmp_path, version, operation="WRITE", userMetadata=delta_log.write("silver", number=version))
    (tmp_path / "_delta_log" / "_last_checkpoint").write_text('{"version":150,"size":7}')
    opened = []
    read_text = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda self, **kwargs: opened.append(self.name) or read_text(self, **kwargs))
    monkeypatch.setattr(Path, "glob", lambda *_: pytest.fail("the folder was listed"))
    # then
    assert delta_log.version(None, tmp_path.as_uri()) == 199
    assert delta_log.local_note(str(tmp_path), "silver")[1]["number"] == 199
    assert delta_log.find_maintained(None, tmp_path.as_uri(), 199) == 199
    assert delta_log.find_maintained(None, tmp_path.as_uri(), 197) is None
    assert len([name for name in opened if name != "_last_checkpoint"]) == 4


def test_log_whose_beginning_is_cleaned_away_is_read_as_far_as_it_goes(tmp_path):
    # given
    for version in (7, 8, 9):
        commit(tmp_path, version, timestamp=version * 1000, operation="OPTIMIZE")
    # then
    assert [number for number, _ in delta_log.commits(None, tmp_path.as_uri())] == [9, 8, 7]
    assert delta_log.find_maintained(None, tmp_path.as_uri(), 6) is None
    assert delta_log.first_after(None, tmp_path.as_uri(), 8) == datetime.fromtimestamp(9, UTC)
    assert delta_log.first_after(None, tmp_path.as_uri(), 9) is None
    # a commit that is gone was made long ago
    assert delta_log.first_after(None, tmp_path.as_uri(), 3) == datetime.fromtimestamp(0, UTC)


def test_l37_a_table_without_a_version_was_not_only_maintained_since_it(tmp_path, monkeypatch):
    monkeypatch.setattr(delta_log.storage, "is_local", lambda *_: True)
    # given a table that was made again, or put back from an older copy: its versions end before the one that was read
    for version in range(3):
        commit(tmp_path, version, operation="WRITE", txnId=f"id-{version}")
    commit(tmp_path, 3, operation="OPTIMIZE", txnId="id-3")
    folder, url = str(tmp_path), tmp_path.as_uri()
    assert delta_log.find_maintained(None, url, 5000) is None
    assert not delta_log.local_only_maintained(folder, 5000)
    # and one that has the version by another commit
    assert delta_log.local_only_maintained(folder, 2, commit="id-2")
    assert not delta_log.local_only_maintained(folder, 2, commit="another")
    # and one whose version is from an earlier release, which noted no commit
    assert delta_log.local_only_maintained(folder, 2)
    assert [delta_log.commit_id(None, url, version) for version in (2, 9)] == ["id-2", None]
