"""What a bridge knows of one source for as long as it runs: its route, metrics, gaps, and the session that serves it now.

No thread and no socket. Changed by the registry, under its lock, and, while a lane holds the session, by that lane.

Gaps of a source: each is logged once, the edge is slowed down while it lasts, and an operator is called when it lasts.
"""

import logging
import time
from collections.abc import Mapping

from bridge.metrics import SourceMetrics
from bridge.model.chain import Gap
from bridge.model.phases import SourcePhase
from bridge.model.route import SourceRoute
from bridge.routing.source_names import SourceNames
from bridge.source.session import Session
from headrace.errors import NeedsOperator, ReplicationError
from headrace.position import Position
from headrace.waiting import Backoff

#: A gap that going back has not closed by then is an operator's matter, in seconds.
_LASTING = 10.0

_UNKNOWN = (
    "%s: the edge goes on after %s, but neither committed offsets nor records in Kafka know a position of this source. "
    "Nothing is taken. If the stream's records were removed on purpose, start a new epoch with "
    "'headrace edge init --adopt --new-epoch' and copy the tables again; else restore the topic."
)
_STAYS = (
    "%s: the edge goes on after %s, Kafka holds the source up to %s, and going back has not brought what is between. "
    "Nothing is taken. If the edge's state was restored from a copy or lost, run 'headrace edge init --adopt' with the "
    "position from 'headrace bridge positions'; if the log is gone, start a new epoch and copy the tables again."
)


class GapWatch:
    """What is known of the gap that a source is in, if it is in one."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._follows: Position | None = None
        self._since = 0.0
        self._is_logged = False
        self._pause = 0.0
        self._backoff = Backoff(first=0.1, longest=5.0)
        #: How often the edge went back and came to the same gap again.
        self.returns = 0

    @property
    def lasting(self) -> bool:
        """Whether there is a gap that going back has not closed: an operator was called."""
        return self._is_logged

    def note_gap(self, gap: Gap) -> float:
        """Take note of a gap; return for how many seconds the delivery's credit is to be withheld."""
        if self._follows is None:
            self._since = time.monotonic()
            self._follows = gap.follows
            if gap.tail is not None:
                _log.info("%s: batch after %s released, tail is %s: going back", self._source, gap.follows, gap.tail)
        elif gap.follows <= self._follows:
            # The edge went back and came to the same place.
            self._follows = gap.follows
            self._pause = self._backoff.pause()
            self.returns += 1
        if not self._is_logged and (gap.tail is None or time.monotonic() - self._since > _LASTING):
            self._is_logged = True
            if gap.tail is None:
                _log.error(_UNKNOWN, self._source, gap.follows)
            else:
                _log.error(_STAYS, self._source, gap.follows, gap.tail)
        return self._pause

    def note_closed(self, follows: Position) -> None:
        """Take note that a batch was the next link: there is no gap any more."""
        if self._follows is None:
            return
        if self._is_logged:
            _log.warning("%s: the gap is closed, going on after %s", self._source, follows)
        self._follows = None
        self._is_logged = False
        self._pause = 0.0
        self.returns = 0
        self._backoff.reset()


_log = logging.getLogger(__name__)

#: Seconds between attempts while an operator is needed: what they do is noticed without a restart.
OPERATOR_PAUSE = 5.0
_WITHHELD = (
    "%s: table %s is withheld from its topic, which is complete up to %s: %s. Its records wait in Kafka, other tables go on. "
    "Allow the change: set the subject's compatibility to NONE in the registry. The bridge then releases the table by itself."
)
_AGAIN = "Trying again. If it lasts, 'headrace bridge doctor' shows what is wrong."


class SourceState:
    """One source of the bridge's file."""

    def __init__(self, route: SourceRoute) -> None:
        self.route = route
        #: Looks into each of its records, where its stream asks for that.
        self.names = SourceNames(route.source) if route.names_checked else None
        self.figures = SourceMetrics()
        #: The lease that this bridge has for the source; None while another bridge has it.
        self.token: int | None = None
        #: Present while the source is served.
        self.session: Session | None = None
        #: Whether its next session is isolated: it may be what could not be written.
        self.isolated = False
        #: Whether only records show that it can be written again: positions could be all the time. Until then it shows why not.
        self.needs_records = False
        self._gaps = GapWatch(route.source)
        self._backoff = Backoff(first=0.2, longest=5.0)
        self._trouble = ""
        # Whether that is a position that could not be read: it is over when a session begins.
        self._is_unread = False
        # How often it failed since something was committed.
        self._failures = 0

    def begin(self, token: int) -> None:
        """Note that the source was assigned to this bridge."""
        self.token, self.isolated, self.needs_records = token, False, False
        self._backoff.reset()
        self._trouble, self._failures = "", 0
        self.figures.begin()

    def serve(self, session: Session) -> None:
        """Note that a session begins."""
        self.session = session
        self.figures.position = str(session.tail or "")
        self.figures.withheld = {table: self.figures.withheld.get(table, "") for table in session.withheld.tables}
        at = session.tail or "no position: its first batch must start an epoch"
        if self._is_unread:
            self._trouble, self._is_unread = "", False
        # While one error repeats, so would this line.
        level = logging.DEBUG if self._trouble else logging.INFO
        _log.log(level, "%s: taken over at %s", session.source, at)
        if not (session.isolated or self.needs_records):
            self.figures.enter(SourcePhase.SERVING)

    def note_gap(self, gap: Gap) -> float:
        """Note a gap; return for how many seconds the delivery's credit is to be withheld."""
        self.figures.released += 1
        self.figures.gaps += 1
        pause = self._gaps.note_gap(gap)
        if self._gaps.lasting:
            self.figures.enter(
                SourcePhase.GAP, f"the edge goes on after {gap.follows}, what is before that is missing: see the log"
            )
        return pause

    def next_link(self, follows: Position) -> None:
        """Note that a batch was the next link of the chain."""
        self._gaps.note_closed(follows)
        if self.figures.state is SourcePhase.GAP:
            self.figures.enter(SourcePhase.SERVING)

    def withhold(self, session: Session, reasons: Mapping[str, str]) -> None:
        """Note which tables are withheld by a committed transaction, and why those are that were not before."""
        if session is not self.session:
            return
        before, now = self.figures.withheld, session.withheld.tables
        for table in now.keys() - before.keys():
            _log.error(
                _WITHHELD, session.source, table, now[table].complete, reasons.get(table, "the registry refused it")
            )
        for table in before.keys() - now.keys():
            _log.warning("%s: table %s is released: all of it is in its topic again", session.source, table)
        if now or before:
            self.figures.withheld = {table: reasons.get(table) or before.get(table, "") for table in now}

    def refused(self, session: Session, table: str, reason: str) -> None:
        """Note why a withheld table cannot be released."""
        if session is self.session and table in self.figures.withheld:
            self.figures.withheld = {**self.figures.withheld, table: reason}

    def committed(self, session: Session, records: int, size: int, seconds: float, *, wrote: bool) -> None:
        """Note that a transaction is committed with the position of the source, and with records if it `wrote` some.

        `records` are those that are new, of this `size` in bytes: not those of a table that is released.
        """
        session.committed_at = time.monotonic()
        if session is not self.session:
            return
        self.figures.commit(records, size, seconds)
        self.figures.position = str(session.tail or "")
        if self.needs_records and not wrote:
            return
        self._backoff.reset()
        self._failures = 0
        self.isolated = session.isolated = self.needs_records = False
        self._trouble = ""
        if self.figures.state is not SourcePhase.GAP:
            self.figures.enter(SourcePhase.SERVING)

    def set_back(self, error: ReplicationError, *, quiet: bool = False) -> None:
        """Note an error that keeps the source from being served; log it once, unless `quiet`: it is logged for all sources."""
        self._failures += 1
        operator = isinstance(error, NeedsOperator)
        trouble = f"{type(error).__name__} {error.message}"
        if trouble != self._trouble:
            level = logging.DEBUG if quiet else logging.ERROR if operator else logging.WARNING
            _log.log(level, "%s: %s. %s", self.route.source, error.message, error.hint or _AGAIN)
        self._trouble, self._is_unread = trouble, False
        # After the log, so that it has what to do once the state is shown.
        self.figures.set_back(SourcePhase.NEEDS_OPERATOR if operator else SourcePhase.WAITING, error.message)

    def note_unread(self, error: ReplicationError) -> None:
        """Note that the position of the source could not be read."""
        self.set_back(error)
        self._is_unread = True

    def pause(self, error: ReplicationError, *, at_once: bool = False) -> float:
        """Return the seconds until the next attempt; none for the first one, with `at_once`."""
        if at_once and self._failures <= 1:
            return 0.0
        return OPERATOR_PAUSE if isinstance(error, NeedsOperator) else self._backoff.pause()

    def drop(self, reason: str) -> None:
        """Note that the source was revoked, and that it is not known yet whether another bridge serves it."""
        self.token = None
        self.figures.set_back(SourcePhase.WAITING, reason)

    def end(self, phase: SourcePhase, reason: str = "") -> None:
        """Note that this bridge does not serve the source any more."""
        self.token = None
        self.figures.enter(phase, reason)
