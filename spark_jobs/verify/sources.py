"""How the sources of a verification are reached: by their edges, or by connections of the lake's file. Called by command.py."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from headrace.configuration.lake import LakeFile
from headrace.verify import engines
from headrace.verify.engine import Database
from headrace.verify.remote import RemoteDatabase
from spark_jobs.kafka.requests import RequestTopics


class Sources:
    """The sources of a lake's file.

    An edge's answer to each request may take `seconds`; one that is at another verification is waited for, `busy_seconds` at
    most, and `on_busy` receives the reason.
    """

    def __init__(self, lake: LakeFile, seconds: float, busy_seconds: float, on_busy: Callable[[str], None]) -> None:
        self._lake, self._seconds = lake, seconds
        self._busy_seconds, self._on_busy = busy_seconds, on_busy
        self._topics: RequestTopics | None = None

    def connect(self, source: str, *, placed: bool) -> AbstractContextManager[Database]:
        """Give a source's database in a snapshot that lasts as long as the context; `placed`, at a known place of its log.

        Raises NotConnected, NeedsOperator or Retryable.
        """
        known = self._lake.sources.get(source)
        if known is not None and known.is_direct:
            return engines.connect(source, known, placed=placed)
        if self._topics is None:
            self._topics = RequestTopics(self._lake.kafka, self._lake.requests.topics(self._lake.kafka.prefix))
        return RemoteDatabase.connect(
            source,
            self._topics,
            seconds=self._seconds,
            placed=placed,
            busy_seconds=self._busy_seconds,
            on_busy=self._on_busy,
        )

    def close(self) -> None:
        """Ask no more."""
        if self._topics is not None:
            self._topics.close()
