"""What a look without Spark reads of the lake's logs."""

import json

from spark_jobs import noop_check
from spark_jobs.state import delta_log, publication
from spark_jobs.state.log_files import LocalFiles


class CountedFiles(LocalFiles):
    """Files of a lake, with how many commits were read."""

    commits = 0

    def read(self, path):
        self.commits += path.endswith(".json")
        return super().read(path)


def test_l48_a_quiet_stream_is_not_looked_for_behind_all_that_another_one_published(tmp_path):
    """L48: of a quiet stream every publication of others since its own was read, for minutes on an object store."""
    log = tmp_path / "state" / "_delta_log"
    log.mkdir(parents=True)

    def publish(number, stream):
        note = delta_log.write(publication.NOTE, stream=stream, whole=True)
        commit = {"commitInfo": {"operation": "WRITE", "timestamp": number, "userMetadata": note}}
        (log / f"{number:020d}.json").write_text(json.dumps(commit))

    publish(0, "quiet")
    for number in range(1, 60):
        publish(number, "busy")
    files = CountedFiles(tmp_path)
    assert noop_check._published(files, "quiet")["stream"] == "quiet"
    for number in range(60, 1000):
        publish(number, "busy")
    files.commits = 0
    assert noop_check._published(files, "quiet") is None
    assert files.commits < 150
    assert noop_check._published(files, "busy")["stream"] == "busy"
