"""Errors by who must act; the class alone decides what happens, and the command turns it into an exit code.

    ReplicationError
    ├── NotConnected         the loop: connect again, after a jittered pause
    ├── Retryable            the loop: do the same step again
    │   └── NoRoom               the loop: go on without writing, and try again
    ├── NeedsOperator        a person: stop, say what happened and what to run
    │   └── ConfigurationError   a person: the file or the command line is wrong
    └── CorruptInput         nobody can pass it: quarantine or stop, by policy

Messages and hints never hold row values or secrets. Exit code 1 is no error's: it means that the answer is no.
"""

from typing import Final

#: Exit code of a command that ends with an error that nobody expected, a defect: "internal software error" of sysexits.h.
UNEXPECTED: Final = 70


class ReplicationError(Exception):
    """A change could not be carried on."""

    #: Exit code of a command that ends with this error.
    exit_code = UNEXPECTED

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        self.message = message or (self.__doc__ or "").strip()
        #: What to do about it, one or two sentences; empty when the loop does it.
        self.hint = hint
        super().__init__(self.message)


class NotConnected(ReplicationError):  # noqa: N818 - a state, which reads best without a suffix.
    """A server cannot be reached, or the connection to it was lost."""

    exit_code = 5


class Retryable(ReplicationError):  # noqa: N818 - as above.
    """The step failed and will be done again."""

    exit_code = 5


class NoRoom(Retryable):
    """The disk takes nothing now: it is full, a limit is reached, or it fails in a way that may pass."""


class NeedsOperator(ReplicationError):  # noqa: N818 - as above.
    """A person has to decide: going on by itself could lose or repeat changes."""

    exit_code = 3


class ConfigurationError(NeedsOperator):
    """The configuration or the command line is wrong."""

    exit_code = 2


class CorruptInput(ReplicationError):  # noqa: N818 - as above.
    """Bytes that cannot be what they claim to be."""

    exit_code = 4
