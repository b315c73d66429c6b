"""Whether a load would find nothing to do, by Kafka and from the tables' logs alone: without Spark, in a second.

Only where the logs can be read without Spark (log_files.py), and only where it is certain; everything else is left to the load
itself. Called before a Spark session is made, by the command and by submit.py.
"""

import logging
from itertools import islice
from time import monotonic

from headrace.configuration.lake import LakeFile
from spark_jobs.bronze import check, sink
from spark_jobs.bronze.load import BronzeReport, mirror
from spark_jobs.load import Report, Step
from spark_jobs.silver.load import SilverReport
from spark_jobs.state import delta_log, log_files, offsets, publication
from spark_jobs.state.log_files import LogFiles

#: Publications, other streams' among them, behind which the stream's own is not looked for: Spark finds it by its row.
_PUBLICATIONS = 100

_log = logging.getLogger(__name__)


def report(lake: LakeFile, stream: str, only: Step | None = None) -> Report | None:
    """Return the report of a load that has nothing to do, or None when there is something, or may be.

    Raises what the load's own look at Kafka raises.
    """
    try:
        files = log_files.of_lake(lake)
        return _report(files, lake, stream, only) if files is not None else None
    except log_files.Unreadable as error:
        _log.info("%s", error.message)
        return None


def whole(lake: LakeFile, stream: str) -> bool:
    """Whether all tables of a stream are certainly where the stream is: none stopped, and none is behind or copied."""
    try:
        files = log_files.of_lake(lake)
        note = _published(files, stream) if files is not None else None
    except log_files.Unreadable as error:
        _log.info("%s", error.message)
        return False
    return note is not None and bool(note["whole"])


def _report(files: LogFiles, lake: LakeFile, stream: str, only: Step | None) -> Report | None:
    began, bronze = monotonic(), files.path("bronze", stream)
    held = offsets.read_local(bronze, stream, files)
    if held is None:
        return None
    if only != "silver" and sink.is_old(delta_log.local_noted_at(bronze, offsets.NOTE, files)):
        return None
    found = check.check(lake, stream, retention=False) if only != "silver" else None
    if found and any((held.positions or {}).get(s, "") < p for s, p in found.get("committed", {}).items()):
        return None
    if (found and found["records"]) or (only != "bronze" and not _silver_is_current(files, lake, stream)):
        return None
    raw = None
    if found:
        mirror(lake, stream, held)
        raw = BronzeReport(stream=stream, topic=found["topic"], seconds=monotonic() - began)
    current = SilverReport(stream=stream, seconds=monotonic() - began) if only != "bronze" else None
    return Report(bronze=raw, silver=current)


def _silver_is_current(files: LogFiles, lake: LakeFile, stream: str) -> bool:
    """Whether all tables of silver, and the histories that are wanted, are published as far as bronze goes."""
    note = _published(files, stream)
    if note is None or not note["whole"] or note["bronze_version"] is None:
        return False
    version, commit = note["bronze_version"], note.get("bronze_commit")
    if not delta_log.local_only_maintained(files.path("bronze", stream), version, files, commit=commit):
        return False
    if note.get("settings") != publication.settings(lake, stream):
        return False
    # Folders of dropped tables stay until maintenance.
    there = set(files.tables(files.path("silver", stream))) - set(note.get("dropped", ()))
    return bool(publication.tables_digest(there) == note["tables"])


def _published(files: LogFiles, stream: str) -> delta_log.Note | None:
    """Return the newest note of what is published of a stream; None when there is none, or many were published since."""
    notes = islice(delta_log.local_notes(files.path("state"), publication.NOTE, files), _PUBLICATIONS)
    return next((note for note in notes if note["stream"] == stream), None)
