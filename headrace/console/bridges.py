"""What the bridges answer at their endpoints, asked every two seconds, each bridge in a thread of its own.

A bridge that does not answer never delays a page: the last answer is kept, with the reason why there is no newer one.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headrace.status.answer import Answer, DeliveryStatus, SourceStatus
from headrace.status.command import answer_of, judge, rank

_log = logging.getLogger(__name__)

#: Seconds between two requests to a bridge, and after which one counts as not answered.
EVERY = 2.0
_TIMEOUT = 3.0


def defect(error: Exception) -> str:
    """Return what a page shows of an error that nobody expected."""
    return f"the console itself has a defect here ({type(error).__name__}): its log has the details"


@dataclass(frozen=True, kw_only=True)
class BridgeSeen:
    """A bridge as it was seen last."""

    #: `host:port` of its endpoint.
    address: str
    #: The last answer; None before the first.
    answer: Answer | None = None
    #: When that came, in seconds since 1970.
    answered_at: float | None = None
    #: Why there is no answer now; empty while there is.
    problem: str = "it has not been asked yet"

    @property
    def state(self) -> str:
        """`ok`, `warn` where it answers and is not ready, `bad` where it does not answer."""
        if self.problem:
            return "bad" if self.asked else "unknown"
        return "ok" if self.answer is not None and self.answer.ready else "warn"

    #: Whether it has been asked at all.
    asked: bool = False


@dataclass(frozen=True, kw_only=True)
class SourceSeen:
    """A source, as the bridge that serves it sees it, or saw it last."""

    status: SourceStatus
    #: The address of that bridge; empty where none has reported the source.
    bridge: str = ""
    #: Why the bridge is not heard now; empty while it is.
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class BridgesView:
    """All bridges at one moment."""

    bridges: tuple[BridgeSeen, ...]
    sources: dict[str, SourceSeen]
    deliveries: tuple[DeliveryStatus, ...] = ()
    at: float = field(default_factory=time.time)

    @property
    def silent(self) -> list[BridgeSeen]:
        """The bridges that do not answer."""
        return [bridge for bridge in self.bridges if bridge.problem]


class Bridges:
    """Asks bridges from `start` until `stop`."""

    def __init__(self, addresses: Sequence[str], known: Sequence[str] = (), *, every: float = EVERY) -> None:
        """Take `host:port` of each bridge, and the sources that the bridges' file names."""
        self._seen = {address: BridgeSeen(address=address) for address in addresses}
        self._known = tuple(known)
        self._every = every
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._follow, args=(address,), name=f"bridge {address}", daemon=True)
            for address in addresses
        ]

    def start(self) -> None:
        """Begin to ask."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ask no more."""
        self._stopped.set()

    def view(self) -> BridgesView:
        """Return what is known now; never waits."""
        bridges = tuple(self._seen.values())
        # Where no bridge answers at all, that is what is wrong with every source.
        silent = all(bridge.problem and bridge.asked for bridge in bridges)
        why = bridges[0].problem if silent and bridges else ""
        sources = {
            name: SourceSeen(status=SourceStatus(source=name, state="not known"), problem=why) for name in self._known
        }
        best: dict[str, tuple[bool, int]] = {}
        # Before all have been asked, one that serves it may follow.
        asked = len(bridges) if all(bridge.asked for bridge in bridges) else 0
        for bridge in bridges:
            if bridge.answer is None:
                continue
            for status in bridge.answer.sources:
                # A bridge that answers is believed before one that does not.
                weight = (not bridge.problem, rank(status))
                if status.source not in best or weight > best[status.source]:
                    best[status.source] = weight
                    sources[status.source] = SourceSeen(
                        status=judge(status, asked), bridge=bridge.address, problem=bridge.problem
                    )
        deliveries = tuple(
            one for bridge in bridges if bridge.answer and not bridge.problem for one in bridge.answer.deliveries
        )
        return BridgesView(bridges=bridges, sources=sources, deliveries=deliveries)

    def ask(self, address: str, look: Callable[[str, float], tuple[Answer | None, str]] = answer_of) -> None:
        """Ask one bridge once."""
        try:
            answer, problem = look(address, _TIMEOUT)
        except Exception as error:  # noqa: BLE001 - whatever it raises: the thread must go on, and the page show it.
            _log.exception("the bridge at %s was not asked", address)
            answer, problem = None, defect(error)
        before = self._seen[address]
        if answer is None:
            self._seen[address] = BridgeSeen(
                address=address, answer=before.answer, answered_at=before.answered_at, problem=problem, asked=True
            )
        else:
            self._seen[address] = BridgeSeen(
                address=address, answer=answer, answered_at=time.time(), problem="", asked=True
            )

    def _follow(self, address: str) -> None:
        while not self._stopped.is_set():
            self.ask(address)
            self._stopped.wait(self._every)
