"""Where the brokers are: what the file names, and what the cluster reports of itself.

A client that is made after all brokers have moved finds none of them at the addresses of the file. So new clients ask at those
that were reported last, too. Guarantees that addresses of another cluster are not taken: a file's new ones, or an old one that
somebody else has by now. One book for each [kafka] bootstrap of a process; safe for threads.
"""

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from headrace.errors import NeedsOperator

_log = logging.getLogger(__name__)

#: What a client takes as a broker's address; and how many are kept.
_ADDRESS = re.compile(r"\[?[A-Za-z0-9._:%-]+\]?:[0-9]{1,5}")
_MOST = 50


def listed(bootstrap: str) -> list[str]:
    """Return the addresses that a text of the file lists."""
    return [each.strip() for each in bootstrap.split(",")]


class Addresses:
    """The addresses of one cluster."""

    def __init__(self, named: str, cluster: str = "") -> None:
        self._named = listed(named)
        self.cluster = cluster
        self._reported: tuple[str, ...] = ()
        # Those that were logged.
        self._logged: set[str] = set()

    @property
    def bootstrap(self) -> str:
        """What a client that is made now asks."""
        return ",".join([*self._named, *(each for each in self._reported if each not in self._named)])

    def note(self, cluster: str, brokers: Iterable[str]) -> None:
        """Note what a broker reported; raise NeedsOperator where it is one of another cluster than those before."""
        if cluster and self.cluster and cluster != self.cluster:
            raise NeedsOperator(
                f"Kafka: a broker is of the cluster {cluster}, and those before were of {self.cluster}",
                hint="Another cluster has none of the sources' positions. Put brokers of the former one into [kafka] bootstrap.",
            )
        reported = tuple(sorted(each for each in brokers if _ADDRESS.fullmatch(each)))[:_MOST]
        if not reported:
            return
        # One that is down is not reported.
        if self._reported and set(reported) - self._logged:
            _log.info("Kafka's brokers are now at %s", ", ".join(reported))
        self._logged = (self._logged if len(self._logged) < 2 * _MOST else set()) | set(reported)
        self.cluster, self._reported = self.cluster or cluster, reported


_books: dict[str, Addresses] = {}


def addresses(bootstrap: str) -> Addresses:
    """Return the book of those connections whose file named these addresses when they were made."""
    return _books.setdefault(bootstrap, Addresses(bootstrap))


@contextmanager
def other_addresses(before: str, named: str) -> Iterator[None]:
    """Have connections go on with the addresses of a changed file, once what is done with these has shown that they are right.

    Another cluster's are found out by `Addresses.note`.
    """
    former = addresses(before)
    found = _books[named] = Addresses(named, former.cluster)
    try:
        yield
    except BaseException:
        _books[before] = former
        raise
    _books[before] = found
