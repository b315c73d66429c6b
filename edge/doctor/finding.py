"""What a check finds, and how checks are run: none of them ends the others."""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple, TypeVar

from headrace.errors import ReplicationError

T = TypeVar("T")

Level = Literal["ok", "warning", "wrong"]


class Finding(NamedTuple):
    """One line of the doctor's."""

    #: What was looked at: a setting's own name where it is one.
    check: str
    level: Level
    #: A sentence.
    said: str
    #: What to do or to run; SQL where it is SQL. Empty when nothing is to be done.
    mend: str = ""


Check = Callable[[T], Iterable[Finding]]


def run(checks: Iterable[Check[T]], subject: T) -> Iterator[Finding]:
    """Yield what the checks find; one that fails is a finding too."""
    for check in checks:
        try:
            yield from check(subject)
        except ReplicationError as error:
            yield Finding(check.__name__.replace("_", " "), "wrong", error.message, error.hint)
