"""The ids of requests that change something, kept in the state folder: a request is done once at most, whatever comes twice.

An id is durable before its request is handled. After its deadline a request is dropped for that reason alone, and the id is
forgotten, so the file is bounded.
"""

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from headrace import files
from headrace.errors import CorruptInput
from headrace.requests.message import Request


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
