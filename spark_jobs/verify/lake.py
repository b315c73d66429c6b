"""Silver at a place of a source's log: as published before, with bronze's later changes up to that place laid over it.

Nothing of silver is written and no load has to stop anywhere: the published state was read before the source's snapshot was
taken, so it cannot be ahead of it. Called by command.py; implements verify.SilverTables.
"""

import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from delta import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import NeedsOperator, Retryable
from headrace.position import Position, commit_text
from headrace.schema import TableSchema
from headrace.verify import canonical
from headrace.verify.comparison import Database, Place
from spark_jobs import storage
from spark_jobs.bronze import increment
from spark_jobs.bronze import load as bronze
from spark_jobs.query import snapshot
from spark_jobs.query.snapshot import StreamSnapshot
from spark_jobs.silver import held_back, table_task, target_schema
from spark_jobs.state import delta_log, published

_log = logging.getLogger(__name__)

#: What the canonical texts rely on, whatever the lake's file sets.
_SETTINGS = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"}
_PAUSE_SECONDS = 0.5
#: Age of the newest commit of bronze, in seconds, up to which another process is loading it; that load is waited for as long.
_LATELY = 15.0


@dataclass(frozen=True, kw_only=True)
class Reached:
    """How far the lake has come towards a place of a source's log."""

    #: Position of the newest record of the source; None when there is none.
    newest: str | None
    #: Positions below it are before the place; None when the source is unknown to the lake.
    bound: str | None
    #: Whether something at or after the place has come, so that all before it has, since a source is in order; or whether
    #: the source's log is known to have nothing between the newest record and the place.
    proven: bool = False


class LakeAt:
    """The silver tables of one stream, as published; and of one source of it after `advance`, at a place of its log."""

    def __init__(self, spark: SparkSession, lake: LakeFile, stream: str) -> None:
        self._spark = spark.newSession()
        for name, value in _SETTINGS.items():
            self._spark.conf.set(name, value)
        self._lake = lake
        self._stream = stream
        self._bronze = bronze.table_path(lake, stream)
        self._scratch = f"{storage.scratch_root(lake)}/{storage.new_scratch_name()}"
        self._state = published.latest(self._spark, lake, stream)
        self._moment: StreamSnapshot | None = None
        #: Version of bronze that our own load left.
        self._ours = -1

    def close(self) -> None:
        """Remove what was laid over silver."""
        if self._moment is not None:
            storage.delete(self._spark, self._scratch)

    def advance(
        self, source: str, database: Database, *, seconds: float, on_progress: Callable[[str], None]
    ) -> Reached:
        """Load bronze until the lake has all that the source committed below its snapshot's place, and keep it there.

        Gives up after `seconds`; at once with 0, as soon as there is nothing more to load. What is loaded then may lack changes.
        """
        began = time.monotonic()
        place = database.place
        assert place is not None, "a snapshot without a place"
        if (problem := self._state.held.get(source)) is not None:
            raise NeedsOperator(f"{source} goes no further in the lake than it is published: {problem}")
        while not (reached := self._reached(source, place, database)).proven:
            on_progress(f"{source}: the lake is at {reached.newest or 'the beginning'}, to come to {place.text}")
            passed = time.monotonic() - began
            others = passed < _LATELY and self._grew_lately()
            if not others and self._load():
                continue
            if not others and passed >= seconds:
                break
            time.sleep(_PAUSE_SECONDS)
        upto = {source: reached.bound} if reached.bound is not None else {}
        self._moment = snapshot.moment(self._spark, self._lake, self._state, upto)
        return reached

    def names(self, source: str) -> set[str]:
        """Return the tables, `schema.table`, that the source has sent changes of."""
        names = {name for name, table in self._state.tables.items() if source in table.schemas}
        return names | {
            profile.table for profile in (self._moment.new.seen if self._moment else ()) if profile.source == source
        }

    def dropped(self) -> set[str]:
        """Return the tables that were dropped from the lake."""
        return set(self._state.dropped)

    def frame(self, source: str, name: str) -> DataFrame | None:
        """Return a source's living rows of a table, with its own columns only; None when there is no silver table."""
        whole = self._whole(name)
        if whole is None:
            return None
        mine = whole.where(F.col(target_schema.SOURCE) == source)
        if target_schema.DELETED_AT in whole.columns:
            mine = mine.where(F.col(target_schema.DELETED_AT).isNull())
        own = (*target_schema.OWN, target_schema.DELETED_AT)
        return mine.select(*(canonical.silver_name(column) for column in whole.columns if column not in own))

    def treated(self, source: str, name: str) -> dict[str, str]:
        """Return what the edge's policy does to columns of a source's table, by its last schema record."""
        schema = self.schema(source, name)
        return schema.treated if schema is not None else {}

    def schema(self, source: str, name: str) -> TableSchema | None:
        """Return a source's table by its last schema record that was published; None for none."""
        table = self._state.tables.get(name)
        text = table.schemas.get(source) if table is not None else None
        return TableSchema.parse(text) if text else None

    def problem(self, source: str, name: str) -> str | None:
        """Return why the load stopped at a source's rows of a table; None when it did not."""
        table = self._state.tables.get(name)
        if table is None or (table.held_back and source not in table.held_back):
            return None
        return table.problem

    def copying(self, source: str, name: str) -> str | None:
        """Return why a source's rows of a table wait for a copy that is under way; None when none is."""
        table = self._state.tables.get(name)
        began = table.copying.get(source) if table is not None else None
        return held_back.waiting_reason({source: began}) if began is not None else None

    def _whole(self, name: str) -> DataFrame | None:
        table = self._state.tables.get(name)
        if self._moment is not None and any(profile.table == name for profile in self._moment.new.seen):
            folder = f"{self._scratch}/{uuid.uuid4().hex}"
            return self._spark.sql(snapshot.sql(self._spark, self._lake, self._moment, name, folder))
        if table is None or table.version is None:
            return None
        path = table_task.path(self._lake, self._stream, name)
        return self._spark.read.format("delta").option("versionAsOf", table.version).load(path)

    def _load(self) -> int:
        """Load bronze; return how many records came."""
        try:
            brought = bronze.load(self._spark, self._lake, self._stream).records
        except Retryable as error:
            # A scheduled load is at work: what it brings counts as well.
            _log.info("%s", error.message)
            return 0
        if brought:
            self._ours = delta_log.version(self._spark, self._bronze)
        return brought

    def _grew_lately(self) -> bool:
        """Whether another process is loading bronze, perhaps permanently: of two at once one would fail."""
        if not delta_log.is_table(self._spark, self._bronze):
            return False
        if delta_log.version(self._spark, self._bronze) == self._ours:
            return False
        last = DeltaTable.forPath(self._spark, self._bronze).history(1).selectExpr("unix_millis(timestamp)").first()
        return last is not None and time.time() - last[0] / 1000 < _LATELY

    def _reached(self, source: str, place: Place, database: Database) -> Reached:
        newest = whole = self._state.positions.get(source)
        if delta_log.is_table(self._spark, self._bronze):
            version = delta_log.version(self._spark, self._bronze)
            # Where tables have topics of their own, one of them may lack what another one has beyond that.
            loaded = bronze.reach(self._spark, self._lake, self._stream, version)
            since = held_back.unpublished_since(self._state, {source} & self._state.unfinished.keys())
            new = increment.rows(self._spark, self._bronze, since, version)
            ended = F.when(F.col("last"), F.col("position"))
            mine = F.col("source") == source
            if loaded is not None:
                mine &= F.col("position") <= loaded.get(source, "")
            (row,) = new.where(mine).agg(F.max("position").alias("position"), F.max(ended).alias("whole")).collect()
            newest = max(newest or "", row["position"] or "") or None
            whole = max(whole or "", row["whole"] or "") or None
        if newest is None:
            return Reached(newest=None, bound=None)
        # All positions of the newest epoch at that commit or later sort above it, and all before below.
        at = Position.parse(newest)
        bound = f"{at.epoch:08x}/{commit_text(place.commit)}"
        complete = newest >= bound or (newest == whole and database.idle_since(at.commit))
        return Reached(newest=newest, bound=bound, proven=complete)
