"""Where the brokers of a cluster are, and how long clients of Kafka's are of use: the one place that has them made again.

librdkafka reads certificates, keys and passwords once, when a client is made, and a client that is made after all brokers have
moved finds none of them at the addresses of the file. So new clients ask at those that were reported last, too, and a client's
time is over when files have changed, when the file names other brokers, or when it has not worked for long. Its owner asks for
that at a moment that suits it: a lane between two transactions, the member of the group between two polls.

Guarantees that addresses of another cluster are not taken: a file's new ones, or an old one that somebody else has by now. One
`Cluster` for each [kafka] bootstrap of a process; safe for threads.
"""

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from headrace.certificates import files
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import ConfigurationError, NeedsOperator

_log = logging.getLogger(__name__)

#: What a client takes as a broker's address; and how many are kept.
_ADDRESS = re.compile(r"\[?[A-Za-z0-9._:%-]+\]?:[0-9]{1,5}")
_MOST = 50
#: How often the files are looked at, in seconds. They are as they were at two looks before they count: several are written one
#: after the other.
_LOOK_SECONDS = 2.0
#: A client that has not worked for so long, in seconds, is made again: its brokers may have other addresses, or its user another
#: password, which came from a command.
UNUSABLE_SECONDS = 45.0


def listed(bootstrap: str) -> list[str]:
    """Return the addresses that a text of the file lists."""
    return [each.strip() for each in bootstrap.split(",")]


class Cluster:
    """What all clients of one cluster have in common."""

    def __init__(self, named: str, cluster: str = "", generation: int = 0) -> None:
        self._named = listed(named)
        self.cluster = cluster
        #: Counts the times at which all clients had to be made again.
        self.generation = generation
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


_clusters: dict[str, Cluster] = {}


def cluster(bootstrap: str) -> Cluster:
    """Return that of the connections whose file named these addresses when they were made."""
    return _clusters.setdefault(bootstrap, Cluster(bootstrap))


@contextmanager
def other_addresses(before: str, named: str) -> Iterator[None]:
    """Have all clients go on with the addresses of a changed file, once what is done with these has shown that they are right.

    Another cluster's are found out by `Cluster.note`.
    """
    former = cluster(before)
    changed = _clusters[named] = Cluster(named, former.cluster, former.generation + 1)
    try:
        yield
    except BaseException:
        _clusters[before] = former
        raise
    _clusters[before] = changed


class Renewal:
    """Watches the files of one connection, and has all its clients made again when they change."""

    def __init__(self, connection: KafkaConnection, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._clock = clock
        self._used = self._seen = self._stamp()
        self._look_at = clock() + _LOOK_SECONDS

    def look(self) -> None:
        """Look whether the files have changed."""
        if self._clock() < self._look_at:
            return
        self._look_at = self._clock() + _LOOK_SECONDS
        before, self._seen = self._seen, self._stamp()
        if self._seen == before != self._used:
            self._used = self._seen
            try:
                files.examine(self._connection)
            except ConfigurationError as error:
                _log.warning("Kafka: the new files are not used: %s. %s", error.message, error.hint)
                return
            _log.info("Kafka: certificates or password have changed; connecting with the new ones")
            cluster(self._connection.bootstrap).generation += 1

    def _stamp(self) -> object:
        secrets = (self._connection.password, self._connection.token)
        return files.stamp(self._connection), tuple(None if each is None else each.stamp for each in secrets)


class Lifetime:
    """How long the client of one owner is of use; for the owner's thread."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._bootstrap = connection.bootstrap
        self._generation = cluster(self._bootstrap).generation
        self._well_at = time.monotonic()

    def works(self) -> None:
        """Note that the client has worked."""
        self._well_at = time.monotonic()

    def is_stale(self) -> bool:
        """Return, once, whether something has changed that a client reads when it is made."""
        before, self._generation = self._generation, cluster(self._bootstrap).generation
        return before != self._generation

    def is_over(self) -> bool:
        """Return, once, whether the client is to be made again: it is stale, or has not worked for long."""
        if not self.is_stale() and time.monotonic() - self._well_at < UNUSABLE_SECONDS:
            return False
        self._well_at = time.monotonic()
        return True


class KeptClient:
    """A client that is made when it is needed, and kept until it is stale or its owner gives it up; for one thread."""

    def __init__(self, connection: KafkaConnection, make: Callable[[], Any]) -> None:
        self._lifetime, self._make = Lifetime(connection), make
        self._client: Any = None

    def get(self) -> Any:
        """Return it."""
        if self._lifetime.is_stale():
            self.close()
        if self._client is None:
            self._client = self._make()
        return self._client

    def close(self) -> None:
        """Give it up; the next call makes another one."""
        gone, self._client = self._client, None
        if gone is not None:
            gone.close()
