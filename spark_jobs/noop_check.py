"""Whether a load would find nothing to do, by Kafka and from the tables' logs alone: without Spark, in a second.

Only of a lake on this machine, and only where it is certain; everything else is left to the load itself. Called before a Spark
session is made, by the command and by submit.py.
"""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic

from headrace.configuration.lake import LakeFile
from spark_jobs.bronze import check, note_renewal
from spark_jobs.bronze.load import BronzeReport, mirror
from spark_jobs.load import Report, Step
from spark_jobs.silver.load import SilverReport
from spark_jobs.state import delta_log, offsets, publication


def report(lake: LakeFile, stream: str, only: Step | None = None) -> Report | None:
    """Return the report of a load that has nothing to do, or None when there is something, or may be.

    Raises what the load's own look at Kafka raises.
    """
    began = monotonic()
    folder = lake.folder
    note = delta_log.local_note(str(folder / "bronze" / stream), offsets.NOTE) if folder is not None else None
    if folder is None or note is None:
        return None
    if only != "silver" and note_renewal.is_old(
        delta_log.local_noted_at(str(folder / "bronze" / stream), offsets.NOTE)
    ):
        return None
    held = offsets.parse(note)
    found = check.check(lake, stream) if only != "silver" else None
    if found and any((held.positions or {}).get(s, "") < p for s, p in found.get("committed", {}).items()):
        return None
    if (found and found["records"]) or (only != "bronze" and not _silver_is_current(lake, folder, stream)):
        return None
    raw = None
    if found:
        mirror(lake, stream, held)
        raw = BronzeReport(stream=stream, topic=found["topic"], seconds=monotonic() - began)
    current = SilverReport(stream=stream, seconds=monotonic() - began) if only != "bronze" else None
    return Report(bronze=raw, silver=current)


def whole(lake: LakeFile, stream: str) -> bool:
    """Whether all tables of a stream are certainly where the stream is: none stopped, and none is behind or copied."""
    note = next((note for note in _notes(lake.folder) if note["stream"] == stream), None) if lake.folder else None
    return note is not None and bool(note["whole"])


def _silver_is_current(lake: LakeFile, folder: Path, stream: str) -> bool:
    """Whether all tables of silver, and the histories that are wanted, are published as far as bronze goes."""
    note = next((note for note in _notes(folder) if note["stream"] == stream), None)
    if note is None or not note["whole"] or note["bronze_version"] is None:
        return False
    if not delta_log.local_only_maintained(str(folder / "bronze" / stream), note["bronze_version"]):
        return False
    if note.get("settings") != publication.settings(lake, stream):
        return False
    there = [one.parent.name for one in (folder / "silver" / stream).glob("*/_delta_log")]
    return bool(publication.tables_digest(there) == note["tables"])


def _notes(folder: Path) -> Iterator[delta_log.Note]:
    return delta_log.local_notes(str(folder / "state"), publication.NOTE)
