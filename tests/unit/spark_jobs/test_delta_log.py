"""The note in a table's newest commit is found without Spark."""

import json

from spark_jobs import delta_log


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
    assert delta_log.local_note(str(tmp_path), "bronze")["offsets"] == {"0": 2}


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
    assert delta_log.added(None, str(tmp_path), 0, 2) == (5, 500)
    assert delta_log.added(None, str(tmp_path), 0, 4) == (12, 1200)
    assert delta_log.added(None, str(tmp_path), 4, 4) == (0, 0)
