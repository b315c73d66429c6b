"""Commits of offsets, and calls of Kafka's client that have no time limit of their own: a broker that hangs holds them.

Such a call is left behind in its thread, with its client, whose `close` would hang as well. The process can go on and end.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from bridge.kafka.entries import reading
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NotConnected

#: How long a broker has to answer, in seconds.
COMMIT_SECONDS = 20.0


def call_within(seconds: float, name: str, call: Callable[[], object]) -> bool:
    """Call in a thread of its own, and return whether the call ended in time; raise what it raised."""
    raised: list[BaseException | None] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread.
            raised.append(error)
        else:
            raised.append(None)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    thread.join(seconds)
    if not raised:
        return False
    if raised[0] is not None:
        raise raised[0]
    return True


def commit_offsets(
    connection: KafkaConnection, group: str, offsets: Sequence[Any], seconds: float = COMMIT_SECONDS
) -> None:
    """Commit offsets for a group that has no members.

    Raises the client's KafkaException where the group refuses, and NotConnected after so many seconds without an answer: then it
    is not known whether they were committed.
    """

    def commit() -> None:
        with reading(connection, group) as client:
            client.commit(offsets=list(offsets), asynchronous=False)

    if not call_within(seconds, f"commit {group}", commit):
        raise NotConnected(
            f"Kafka: no answer to a commit of positions of group {group} within {seconds:.0f} s",
            hint="It is not known whether they were committed; doing it again when Kafka answers changes nothing more.",
        )
