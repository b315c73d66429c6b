"""What errors of Kafka's client mean: who has to act, and what a lane has to do. Every call goes through `translated`."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bridge.kafka.client import TIMEOUT, KafkaError, KafkaException
from bridge.model.ports import Fenced, OldGeneration
from headrace.errors import NeedsOperator, NotConnected, ReplicationError, Retryable

_TOO_FEW_HINT = (
    "Trying again. If it lasts, too few brokers are up: 'headrace bridge doctor' names the partitions that cannot be "
    "written."
)
_UNREACHABLE = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - the client's own error codes are named so.
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._RESOLVE,  # noqa: SLF001
        KafkaError._WAIT_COORD,  # noqa: SLF001
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.REQUEST_TIMED_OUT,
    }
)

_FENCED = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    }
)

_OLD_GENERATION = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
    }
)

#: What a cluster answers whose brokers are up in too small a number. A transaction whose end cannot be written is "concurrent"
#: with each that is tried after it.
_TOO_FEW = frozenset(
    {
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)

_REFUSED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Allow the bridge's user to {} the topic.",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Allow the bridge's user to read and write groups named 'headrace.*'.",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Allow the bridge's user transactional ids named 'headrace.*'.",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "Allow the bridge's user idempotent writes.",
    KafkaError.SASL_AUTHENTICATION_FAILED: "Check the bridge's user and password at Kafka.",
    KafkaError._AUTHENTICATION: "Check the bridge's user and password at Kafka.",  # noqa: SLF001
    KafkaError.UNKNOWN_TOPIC_OR_PART: "Run 'headrace bridge init'.",
    KafkaError._UNKNOWN_TOPIC: "Run 'headrace bridge init'.",  # noqa: SLF001
    KafkaError.MSG_SIZE_TOO_LARGE: "Raise max.message.bytes on the topic.",
    KafkaError._UNKNOWN_PARTITION: "Run 'headrace bridge init'.",  # noqa: SLF001
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "Raise the broker's 'transaction.max.timeout.ms'.",
}


#: What is needed at a topic for what was tried, by its verb.
_NEEDED = {"delete": "delete (--operation Delete) records of", "read": "read"}


@contextmanager
def translated(doing: str, client: Any = None) -> Iterator[None]:
    """Turn the client's errors into ours: `doing` is what was tried, "commit jakarta/bank".

    With the administration client, which is renewed when it does not reach its brokers, those that cannot be reached because they
    and we do not trust each other are an operator's.
    """
    try:
        yield
    except KafkaException as error:
        ours = _ours(error.args[0], doing)
        distrust = _distrust(client) if client is not None and isinstance(ours, NotConnected) else ""
        if client is not None and isinstance(ours, NotConnected):
            # It may have lost its brokers for good, or have a password that is no more.
            client.renew()
        if distrust:
            raise NeedsOperator(
                f"Kafka and this bridge do not trust each other: {distrust}",
                hint="Check [kafka] security_protocol, user, password, authority and the name in bootstrap.",
            ) from error
        raise ours from error


def error_of(error: Any, doing: str) -> ReplicationError:
    """Return the error of ours that one of the client's means."""
    return _ours(error.args[0], doing)


def is_instance_fenced(error: Any) -> bool:
    """Whether another process has joined a group with this one's instance name."""
    # As the fatal error of a client it has lost its code.
    return bool(error.code() == KafkaError.FENCED_INSTANCE_ID or "fenced by other consumer" in error.str())


def _distrust(client: Any) -> str:
    """Return what a broker, or we, refused in the last seconds; empty when nothing."""
    client.poll(0)
    since = time.monotonic() - 2 * TIMEOUT
    return next((error.str()[:300] for at, error in reversed(client.refusals) if at > since), "")


def _ours(error: Any, doing: str) -> ReplicationError:
    code, text = error.code(), f"Kafka: cannot {doing}: {error.str()} ({error.name()})"
    if code in _FENCED:
        return Fenced(text)
    if code in _OLD_GENERATION:
        return OldGeneration(text)
    if code in _REFUSED:
        return NeedsOperator(text, hint=_REFUSED[code].format(_NEEDED.get(doing.partition(" ")[0], "write to")))
    hint = _TOO_FEW_HINT if code in _TOO_FEW else ""
    if code in _UNREACHABLE:
        return NotConnected(text, hint=hint)
    return Retryable(text, hint=hint)
