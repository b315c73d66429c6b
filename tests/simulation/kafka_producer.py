"""A transactional producer as librdkafka's is: what each call may raise, and what must follow."""

from collections.abc import Callable
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, KafkaException

from tests.simulation.kafka_admin import cluster
from tests.simulation.kafka_broker import Broker, Channel, failure
from tests.simulation.kafka_group import GroupMetadata, Opaque

_FATAL = frozenset(
    {
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.INVALID_TXN_STATE,
    }
)
#: After these the transaction has to be aborted.
_ABORT = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    }
)


class Message:
    """What a delivery report shows."""

    def __init__(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        offset: int = -1,
        headers: Any = (),
        at: int = 0,
    ) -> None:
        self._fields = topic, partition, key, value, offset
        self._more = headers, at
        self._error: Any = None

    def topic(self) -> str:
        return self._fields[0]

    def partition(self) -> int:
        return self._fields[1]

    def key(self) -> bytes | None:
        return self._fields[2]

    def value(self) -> bytes | None:
        return self._fields[3]

    def offset(self) -> int:
        return self._fields[4]

    def headers(self) -> Any:
        return list(self._more[0]) or None

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_CREATE_TIME, self._more[1]

    def error(self) -> Any:
        return self._error


class Producer:
    """confluent_kafka.Producer, transactional."""

    #: The cluster of the present run.
    broker: Broker

    def __init__(self, settings: Any, logger: Any = None, **more: Any) -> None:
        settings = dict(settings) | more
        self._name = settings["transactional.id"]
        self._timeout = int(settings.get("transaction.timeout.ms", 60_000)) / 1000
        self._largest = int(settings.get("message.max.bytes", 1_000_000))
        self._channel = Channel(self.broker, f"producer {self._name}")
        self._scheduler = self.broker.scheduler
        self._epoch: tuple[int, int] | None = None
        self._state = "new"
        self._error: Any = None
        self._queue: list[tuple[tuple[str, int], bytes | None, bytes | None, Any, Any]] = []
        self._reports: list[tuple[Any, Any, Message]] = []
        #: What was sent and not answered: it has a sequence number, and is written once however often it is sent.
        self._sent: list[tuple[tuple[str, int], list[Any], list[Any]]] = []
        self._partitions: set[tuple[str, int]] = set()
        self._groups: set[str] = set()

    def __len__(self) -> int:
        return len(self._queue) + len(self._reports) + sum(len(records) for _, records, _ in self._sent)

    def init_transactions(self, timeout: float = -1) -> None:
        """Take the transactional id; whoever had it before is fenced."""
        self._usable("new", "ready")
        value = self._ask("InitProducerId", lambda: self.broker.transactions.init(self._name, self._timeout), timeout)
        if isinstance(value, tuple):
            self._epoch, self._state, self._error = value, "ready", None
            self._scheduler.trace(f"{self._name} initialised with epoch {value[1]}")

    def begin_transaction(self) -> None:
        """Begin a transaction; the broker hears of it with the first partition."""
        self._channel.hang("begin")
        self._scheduler.point()
        self._usable("ready")
        self._state = "open"
        self._partitions, self._groups = set(), set()

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int = -1,
        on_delivery: Any = None,
        timestamp: int = 0,
        headers: Any = None,
        callback: Any = None,
    ) -> None:
        """Put a record into the queue."""
        self._channel.hang("produce")
        self._usable("open")
        if len(value or b"") + len(key or b"") > self._largest:
            raise KafkaException(failure(KafkaError.MSG_SIZE_TOO_LARGE, "message size too large"))
        self._queue.append(((topic, partition), key, value, on_delivery or callback, headers))

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], partition: int = -1, **_: Any) -> int:
        """Put several."""
        for message in messages:
            self.produce(topic, message.get("value"), message.get("key"), message.get("partition", partition))
        return len(messages)

    def poll(self, timeout: float = 0) -> int:
        """Serve delivery reports."""
        self._scheduler.point()
        reports, self._reports = self._reports, []
        for callback, error, message in reports:
            if callback is not None:
                callback(error, message)
        return len(reports)

    def flush(self, timeout: float = -1) -> int:
        """Send what is in the queue, wait for its answers, and serve its reports; return how much is left."""
        try:
            self._push(timeout)
        except KafkaException as error:
            # A flush raises nothing: the records' reports say what is wrong, and so does the next call.
            if error.args[0].code() != KafkaError._TIMED_OUT:
                self._error = self._error or error.args[0]
                self._fail(error.args[0])
        self.poll(0)
        return len(self)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Forget what is in the queue."""
        self._channel.hang("purge")
        self._fail(KafkaError(KafkaError._PURGE_QUEUE))

    def send_offsets_to_transaction(self, positions: list[Any], group_metadata: Opaque, timeout: float = -1) -> None:
        """Have offsets committed with the transaction."""
        self._usable("open")
        self._raise_abort()
        name, epoch, broker = self._name, self._epoch[1], self.broker  # type: ignore[index]
        said: GroupMetadata = group_metadata.said
        group = said.group
        offsets = {(each.topic, each.partition): (each.offset, each.metadata or "") for each in positions}
        if not offsets:
            return
        value = self._ask("AddOffsetsToTxn", lambda: broker.transactions.add_offsets(name, epoch, group), timeout)
        self._judge(value, "AddOffsetsToTxn")
        self._groups.add(group)
        value = self._ask(
            "TxnOffsetCommit",
            lambda: broker.transactions.commit_offsets(name, epoch, group, said, offsets),
            timeout,
        )
        self._judge(value, "TxnOffsetCommit")

    def commit_transaction(self, timeout: float = -1) -> None:
        """Send what is left, then end the transaction; after a timeout it may be asked again."""
        self._end(timeout, commit=True)

    def abort_transaction(self, timeout: float = -1) -> None:
        """Drop the transaction."""
        self._fail(KafkaError(KafkaError._PURGE_QUEUE))
        self._end(timeout, commit=False)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return what topics there are."""
        return self._ask("Metadata", lambda: cluster(self.broker, topic), timeout)

    def _end(self, timeout: float, *, commit: bool) -> None:
        self._usable("open", "committing" if commit else "aborting")
        if commit:
            self._raise_abort()
            self._push(timeout)
            self._raise_abort()
        name, epoch, broker = self._name, self._epoch[1], self.broker  # type: ignore[index]
        self._state = "committing" if commit else "aborting"
        if self._partitions or self._groups:
            value = self._ask("EndTxn", lambda: broker.transactions.end(name, epoch, commit=commit), timeout)
            self._judge(value, "EndTxn")
            self._scheduler.trace(f"{name} {'commits' if commit else 'aborts'}")
        self._state, self._error = "ready", None

    def _push(self, timeout: float) -> None:
        if not (self._queue or self._sent) or self._state not in {"open", "committing"}:
            return
        self._raise_abort()
        name, epoch, broker = self._name, self._epoch[1], self.broker  # type: ignore[index]
        fresh = {each[0] for each in self._queue} - self._partitions
        if fresh:
            value = self._ask(
                "AddPartitionsToTxn", lambda: broker.transactions.add_partitions(name, epoch, fresh), timeout
            )
            self._judge(value, "AddPartitionsToTxn")
            self._partitions |= fresh
        by: dict[tuple[str, int], list[Any]] = {}
        for each in self._queue:
            by.setdefault(each[0], []).append(each)
        self._queue = []
        self._sent += [(at, records, []) for at, records in by.items()]
        # What has no leader waits at the client, and nothing else behind it.
        until = self._scheduler.now + (timeout if timeout >= 0 else 60.0)
        while self._sent:
            index = next((n for n, (at, _, _) in enumerate(self._sent) if broker.has_leader(at)), None)
            if index is None:
                self._scheduler.sleep(max(0.0, min(0.05, until - self._scheduler.now)))
                if self._scheduler.now >= until:
                    raise KafkaException(failure(KafkaError._TIMED_OUT, "no leader", retriable=True))
                continue
            at, records, written = self._sent[index]

            def write(at: tuple[str, int] = at, records: list[Any] = records, written: list[Any] = written) -> Any:
                if not written:
                    written.append(
                        broker.transactions.produce(name, epoch, at, [(each[1], each[2], each[4]) for each in records])
                    )
                return written[0]

            value = self._ask(f"Produce to {at[0]}[{at[1]}]", write, timeout)
            self._judge(value, "Produce")
            self._sent.pop(index)
            self._reports += [
                (each[3], None, Message(*at, each[1], each[2], value[0] + number))
                for number, each in enumerate(records)
            ]

    def _fail(self, error: Any) -> None:
        """Report what was not taken."""
        for at, records, _ in self._sent:
            self._reports += [(each[3], error, Message(*at, each[1], each[2])) for each in records]
        self._reports += [(each[3], error, Message(*each[0], each[1], each[2])) for each in self._queue]
        self._sent, self._queue = [], []

    def _ask(self, what: str, apply: Callable[[], Any], timeout: float) -> Any:
        return self._channel.ask(what, apply, timeout if timeout is not None and timeout >= 0 else 60.0)

    def _judge(self, value: Any, what: str) -> None:
        if not isinstance(value, int) or value == 0:
            return
        self._scheduler.trace(f"{self._name}: {what} is refused: {KafkaError(value).name()}")
        if value in _FATAL:
            self._state = "fatal"
            code = (
                KafkaError._FENCED
                if value in {KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
                else value
            )
            self._error = failure(code, what, fatal=True)
        elif value in _ABORT:
            self._error = failure(value, what, abort=True)
        else:
            raise KafkaException(failure(value, what, retriable=True))
        raise KafkaException(self._error)

    def _raise_abort(self) -> None:
        if self._error is not None:
            raise KafkaException(self._error)

    def _usable(self, *states: str) -> None:
        if self._state == "fatal":
            raise KafkaException(self._error)
        if self._state not in states:
            raise KafkaException(failure(KafkaError._STATE, f"not valid in state {self._state}"))
