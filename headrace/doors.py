"""The doors: each place where something comes in that a peer, a topic or a registry made (design decisions 20 and 21).

Whatever the processing of one input raises is caught at its door, counted with the name of who sent it, logged without values,
and becomes the answer to that input: a rejected delivery, a closed connection, a record that is passed over. It never ends the
process. Errors of our own state are not for doors. tests/hostile/test_doors.py has hostile input for each door.
"""

import logging
import traceback
from collections.abc import Mapping
from pathlib import Path

from headrace.errors import CorruptInput, ReplicationError
from headrace.logs import RateLimitedLog

_log = logging.getLogger(__name__)

#: Names that a door counts apart; what others send is counted together, so that names cost bounded memory.
_MOST_NAMES = 1000
OTHERS = "others"
_LONGEST_NAME = 100
_ROOT = Path(__file__).parent.parent


class Door:
    """One of them. Safe for threads: a count that two threads add to at once may miss one."""

    def __init__(self, name: str, inputs: str) -> None:
        self.name = name
        #: What comes in, for the log: "a batch".
        self.inputs = inputs
        #: Refused inputs by who sent them.
        self.refused: dict[str, int] = {}
        self._unexpected = RateLimitedLog(_log.error)

    def refuse(self, error: Exception, whose: str = "", count: int = 1) -> ReplicationError:
        """Count an input that cannot be processed, or several; return the error to answer with.

        An error that nobody expected is logged by its class and place: its text may hold what came in. `whose` is a source, the
        common name of a certificate, or an address.
        """
        name = whose[:_LONGEST_NAME]
        if name not in self.refused and len(self.refused) >= _MOST_NAMES:
            name = OTHERS
        self.refused[name] = self.refused.get(name, 0) + count
        if isinstance(error, ReplicationError):
            return error
        where = place_of(error)
        self._unexpected("%s of %s is refused: %s at %s", self.inputs, name or "?", type(error).__name__, where)
        return CorruptInput(
            f"{self.inputs} cannot be processed ({type(error).__name__} at {where})",
            hint="Its sender is no part of this release, was altered, or there is a defect: report this line.",
        )


def log_unexpected(log: logging.Logger, what: str, error: BaseException) -> None:
    """Log an error that nobody expected by its class and place: its text, and a traceback, may hold values of rows."""
    log.error("%s: %s at %s", what, type(error).__name__, place_of(error))


def explain(what: str, error: Exception) -> ReplicationError:
    """Return an error of ours as it is; of one that nobody expected, what it ended, its class and its place, as above."""
    if isinstance(error, ReplicationError):
        return error
    message = f"{what} ended with {type(error).__name__} at {place_of(error)}"
    return ReplicationError(message, hint="That is a defect: report this line.")


def place_of(error: BaseException) -> str:
    """Return the innermost line of this project in an error's traceback, as `file:line`."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [
        each for each in frames if Path(each.filename).is_relative_to(_ROOT) and "site-packages" not in each.filename
    ]
    frame = next(iter(reversed(ours or frames)), None)
    if frame is None:
        return "?"
    path = Path(frame.filename)
    return f"{path.relative_to(_ROOT) if ours else path.name}:{frame.lineno}"


#: Frames, properties and conditions of AMQP: the connection is closed; a rejected delivery is a dead letter without its words.
AMQP = Door("amqp", "an AMQP frame")
#: Encoded messages: the delivery is rejected.
MESSAGE = Door("message", "an AMQP message")
#: Deliveries above what a link may hold or was given credit for: its link or connection is closed.
MEMORY = Door("memory", "a delivery above its limit")
#: Bodies of batches, in a lane: the delivery is rejected.
BATCH = Door("batch", "a batch")
#: Records of requests in Kafka, passed over; and at the edge, rejected.
REQUEST = Door("request", "a request")
#: Parts of answers, rejected at the bridge; and in Kafka, passed over.
ANSWER = Door("answer", "an answer")
#: Records of topics that are delivered to receivers: they become dead letters.
DELIVERY = Door("delivery", "a record to deliver")
#: Withheld records: their release ends.
WITHHELD = Door("withheld", "a withheld record")
#: Answers of the schema registry.
REGISTRY = Door("registry", "an answer of the schema registry")
#: Requests for loads in a warm process: the connection is closed.
LOAD = Door("load", "a request for a load")
#: Records of a stream's topics as bronze reads them: they are quarantined.
BRONZE = Door("bronze", "a record")
#: Visitors of the console who have no right, ask for what is not there, or are too many or too slow: an error, or the end.
CONSOLE = Door("console", "a request to the console")
#: As that at the endpoint of metrics.
ENDPOINT = Door("endpoint", "a request to the endpoint of metrics")

ALL: Mapping[str, Door] = {
    door.name: door
    for door in (
        AMQP, MESSAGE, MEMORY, BATCH, REQUEST, ANSWER, DELIVERY, WITHHELD, REGISTRY, LOAD, BRONZE, CONSOLE, ENDPOINT,
    )
}  # fmt: skip


def refused() -> Mapping[str, Mapping[str, int]]:
    """Return how many inputs each door of this process has refused, by sender."""
    return {name: door.refused for name, door in ALL.items()}
