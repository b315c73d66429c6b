"""Parts of answers on their way out: each waits until the other side has accepted it, or its deadline has passed.

Filled by the threads that handle requests, emptied by the connection's. Safe for threads.

The ids of requests that change something, kept in the state folder: a request is done once at most, whatever comes twice.
"""

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from headrace import files
from headrace.errors import CorruptInput
from headrace.requests.message import Part, Request, encode

_log = logging.getLogger(__name__)

#: Parts that wait, beyond which no more requests are taken.
_MANY = 400


class AnswerOutbox:
    """The parts, in the order in which they are to be sent."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._waiting: deque[tuple[int, int, Part]] = deque()
        self._sent: dict[int, tuple[int, Part]] = {}
        #: Called after parts were put in, by any thread.
        self.wake: Callable[[], None] = lambda: None

    @property
    def is_full(self) -> bool:
        """Whether so much waits that no more requests should be taken."""
        return len(self._waiting) + len(self._sent) > _MANY

    @property
    def is_empty(self) -> bool:
        """Whether every part was accepted, or given up."""
        return not self._waiting and not self._sent

    def put(self, parts: Iterable[Part], deadline: int) -> None:
        """Have the parts of an answer sent, unless its deadline, in milliseconds since 1970, has passed."""
        with self._lock:
            self._waiting.extend((next(self._numbers), deadline, part) for part in parts)
        self.wake()

    def take(self) -> tuple[int, bytes, Part, int] | None:
        """Return the next part: its number, its bytes, itself and its deadline; None when nothing waits."""
        late = set()
        with self._lock:
            while self._waiting:
                number, deadline, part = self._waiting.popleft()
                if deadline < self._clock() * 1000 and part.outcome != "expired":
                    late.add((part.id, part.kind))
                    continue
                self._sent[number] = (deadline, part)
                break
            else:
                number = 0
        for request, kind in late:
            _log.warning("the answer to request %s (%s) is dropped: its deadline has passed", request, kind)
        if not number:
            return None
        return number, encode(part), part, deadline

    def settled(self, number: int) -> None:
        """Forget a part: the other side has it, or refuses it."""
        with self._lock:
            self._sent.pop(number, None)

    def returned(self, number: int) -> None:
        """Have a part sent again."""
        with self._lock:
            found = self._sent.pop(number, None)
            if found is not None:
                self._waiting.appendleft((number, *found))

    def lost(self) -> None:
        """Have all parts sent again that have no outcome: the link is gone."""
        with self._lock:
            for number in sorted(self._sent, reverse=True):
                self._waiting.appendleft((number, *self._sent.pop(number)))


class KnownRequests:
    """The file; used by one thread at a time."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = folder / "requests.json"
        self._clock = clock
        #: Deadlines, in milliseconds, by id; None until the file is read.
        self._deadlines: dict[str, int] | None = None

    def add(self, request: Request) -> bool:
        """Note a request durably; False when it was noted before.

        Raises NoSpace or NeedsOperator where the disk refuses, and CorruptInput for a damaged file: then it must not be done.
        """
        if self._deadlines is None:
            self._deadlines = self._read()
        if request.id in self._deadlines:
            return False
        now = int(self._clock() * 1000)
        kept = {known: deadline for known, deadline in self._deadlines.items() if deadline > now}
        kept[request.id] = request.deadline
        files.write_private(self._path, msgspec.json.encode(kept))
        self._deadlines = kept
        return True

    def _read(self) -> dict[str, int]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, int])
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise files.problem(self._path, "read", error) from error
        except msgspec.MsgspecError as error:
            raise CorruptInput(
                f"{self._path} is damaged",
                hint="Remove it: it holds the ids of requests from headquarters of the last hours, and nothing else.",
            ) from error
