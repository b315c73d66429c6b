"""Databases of SQL whose tables no load has published: the newest rows (`silver_live`), or those of a moment in the past.

Guarantees that all tables of a stream that one query names are shown at the same moment. The changes that are laid
over published tables are in a scratch folder under the lake's root until they are replaced or the session is closed.
"""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from headrace.errors import ConfigurationError, ReplicationError
from spark_jobs import scratch, storage
from spark_jobs.bronze.increment import Live
from spark_jobs.errors import explained
from spark_jobs.query import as_of, snapshot
from spark_jobs.query.snapshot import StreamSnapshot
from spark_jobs.session import for_few_rows
from spark_jobs.state import names
from spark_jobs.state.names import Place
from spark_jobs.state.published import Published


def _new_folder(lake: LakeFile) -> tuple[str, datetime]:
    now = datetime.now(UTC)
    return f"{scratch.root(lake)}/{scratch.name(now)}", now


class Overlays:
    """One database: the tables of all streams, each stream at a moment of its own."""

    def __init__(self, spark: SparkSession, lake: LakeFile, database: str, *, as_of: datetime | None = None) -> None:
        self.database = database
        self._spark, self._lake, self._as_of = spark, lake, as_of
        self._folder, self._made = _new_folder(lake)
        self._live: Live | None = None
        self._moments: dict[str, StreamSnapshot] = {}
        #: Why a stream cannot be shown.
        self._problems: dict[str, ReplicationError] = {}
        #: What each table was last written for, and where.
        self._written: dict[Place, tuple[StreamSnapshot, str]] = {}

    def close(self) -> None:
        """Remove what was written, and release what is held."""
        for moment in self._moments.values():
            moment.release()
        for _, folder in self._written.values():
            snapshot.forget(self._spark, folder)
        storage.delete(self._spark, self._folder)

    def outdated(self, words: set[str], streams: list[Published]) -> Iterator[tuple[str, Place]]:
        """Yield each table that a query names and that differs from when it was last queried.

        `words` is what the query's text consists of, `streams` what they published last.
        """
        self._renew()
        for place, name in names.of(self._spark, self._lake, self._places(streams)).items():
            old = self._written.get(place)
            current = old is not None and old[0] is self._moments.get(place[0])
            if name.casefold() in words and not current:
                yield name, place

    def statement(self, place: Place) -> str:
        """Return the statement that reads a table; raise NeedsOperator or CorruptInput where a load would stop the table."""
        if old := self._written.pop(place, None):
            snapshot.forget(self._spark, old[1])
        if place[0] in self._problems:
            raise self._problems[place[0]]
        moment, folder = self._moments[place[0]], f"{self._folder}/{uuid.uuid4().hex}"
        statement = snapshot.sql(self._spark, self._lake, moment, place[1], folder)
        self._written[place] = (moment, folder)
        return statement

    def _renew(self) -> None:
        """Begin a new folder before maintenance takes the present one for abandoned, and write all that is queried again."""
        if datetime.now(UTC) - self._made > scratch.RENEWED:
            for _, folder in self._written.values():
                snapshot.forget(self._spark, folder)
            self._written.clear()
            storage.delete(self._spark, self._folder)
            self._folder, self._made = _new_folder(self._lake)

    def _places(self, streams: list[Published]) -> list[Place]:
        """Return the tables, after every stream was looked at."""
        states = {state.stream: state for state in streams}
        for stream in sorted(self._lake.streams):
            try:
                self._look(stream, states.get(stream, Published(stream=stream)))
                self._problems.pop(stream, None)
            except ReplicationError as error:
                # Of this stream nothing can be shown; others are not concerned.
                self._problems[stream] = error
                if known := self._moments.pop(stream, None):
                    known.release()
        if self._as_of is not None and not self._moments and not self._problems:
            raise ConfigurationError(
                f"nothing had been captured at {self._as_of.isoformat()}",
                hint="Name a later time. SELECT min(commit_time) FROM bronze.<stream> returns the first one.",
            )
        places = [(stream, table) for stream, moment in self._moments.items() for table in moment.tables()]
        return places + [
            (stream, table) for stream in self._problems if stream in states for table in states[stream].tables
        ]

    def _look(self, stream: str, base: Published) -> None:
        """Bring a stream's moment up to its newest whole transactions, or to the moment in the past, once."""
        known = self._moments.get(stream)
        with explained(f"stream {stream}"):
            if self._as_of is None:
                self._live = self._live or Live(for_few_rows(self._spark))
                moment = snapshot.moment(self._spark, self._lake, base, known=known, live=self._live)
            else:
                moment = known or as_of.at(self._spark, self._lake, stream, self._as_of)
        if moment is not None:
            if known is not None and known is not moment:
                known.release()
            self._moments[stream] = moment
