"""An administration client over the simulated Kafka: what the bridge asks of it."""

from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.simulation.kafka_broker import Broker, Channel


def cluster(broker: Broker, topic: str | None = None) -> Any:
    """Return what Metadata answers."""
    known = {
        name: SimpleNamespace(
            topic=name,
            error=None,
            partitions={
                number: SimpleNamespace(
                    id=number, leader=1 if broker.has_leader((name, number)) else -1, replicas=[1], isrs=[1], error=None
                )
                for number in range(len(logs))
            },
        )
        for name, logs in broker.topics.items()
        if topic is None or name == topic
    }
    if topic is not None and topic not in known:
        known[topic] = SimpleNamespace(topic=topic, error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), partitions={})
    brokers = {1: SimpleNamespace(id=1, host="kafka", port=9092)}
    return SimpleNamespace(topics=known, brokers=brokers, controller_id=1, cluster_id="simulated")


class Future:
    """An answer that is there, or that says why not."""

    def __init__(self, value: Any = None, error: Any = None) -> None:
        self._value, self._error = value, error

    def result(self, timeout: float | None = None) -> Any:
        """Return it."""
        if self._error is not None:
            raise self._error
        return self._value


class AdminClient:
    """confluent_kafka.admin.AdminClient."""

    broker: Broker

    def __init__(self, settings: Any, logger: Any = None, **_: Any) -> None:
        self._channel = Channel(self.broker, "admin")

    def poll(self, timeout: float = 0) -> int:
        """Serve callbacks."""
        return 0

    def list_topics(self, topic: str | None = None, timeout: float = 10.0) -> Any:
        """Return what topics there are."""
        return self._channel.ask("Metadata", lambda: cluster(self.broker, topic), timeout)

    def describe_topics(self, topics: Any, request_timeout: float = 10.0, **_: Any) -> dict[str, Future]:
        """Return the ids of topics."""

        def read(name: str) -> Any:
            logs = self.broker.topics.get(name)
            return KafkaError.UNKNOWN_TOPIC_OR_PART if logs is None else SimpleNamespace(topic_id=id(logs))

        return {
            name: self._future(self._ask("Metadata", lambda n=name: read(n), request_timeout))
            for name in topics.topic_names
        }

    def describe_configs(self, resources: list[Any], request_timeout: float = 10.0, **_: Any) -> dict[Any, Any]:
        """Return the settings of topics."""
        results = {}
        for resource in resources:
            settings = self._ask(
                "DescribeConfigs", lambda r=resource: self.broker.settings.get(r.name, 3), request_timeout
            )
            results[resource] = self._future(
                {name: SimpleNamespace(name=name, value=value) for name, value in settings.items()}
                if isinstance(settings, dict)
                else settings
            )
        return results

    def delete_consumer_groups(self, groups: list[str], request_timeout: float = 10.0, **_: Any) -> dict[str, Any]:
        """Delete groups."""
        return {
            name: self._future(
                self._ask("DeleteGroups", lambda n=name: bool(self.broker.groups.pop(n, True)), request_timeout)
            )
            for name in groups
        }

    def list_consumer_group_offsets(
        self, requests: list[Any], request_timeout: float = 10.0, **more: Any
    ) -> dict[str, Any]:
        """Return the offsets of groups."""
        answers = {}
        for request in requests:
            name, asked = request.group_id, request.topic_partitions

            def read(name: str = name, asked: Any = asked) -> Any:
                group = self.broker.group(name)
                wanted = list(group.offsets) if asked is None else [(each.topic, each.partition) for each in asked]
                answer = group.fetch(wanted, stable=bool(more.get("require_stable")))
                return (
                    answer
                    if isinstance(answer, int)
                    else [offset_of(topic, number, answer) for topic, number in wanted]
                )

            value = self._ask("OffsetFetch", read, request_timeout)
            answers[name] = self._future(SimpleNamespace(group_id=name, topic_partitions=value))
        return answers

    def list_consumer_groups(self, request_timeout: float = 10.0, **_: Any) -> Future:
        """Return the groups that there are."""
        value = self._ask("ListGroups", lambda: list(self.broker.groups), request_timeout)
        return self._future(
            value
            if isinstance(value, KafkaException)
            else SimpleNamespace(valid=[SimpleNamespace(group_id=name) for name in value], errors=[])
        )

    def describe_consumer_groups(self, groups: list[str], request_timeout: float = 10.0, **_: Any) -> dict[str, Future]:
        """Return the members of groups and what they have."""

        def read(name: str) -> Any:
            group = self.broker.group(name)
            members = [
                SimpleNamespace(
                    group_instance_id=member.instance,
                    assignment=SimpleNamespace(topic_partitions=[TopicPartition(*at) for at in member.assignment]),
                )
                for member in group.members.values()
            ]
            state = "STABLE" if group.state == "stable" else "PREPARING_REBALANCING"
            return SimpleNamespace(state=SimpleNamespace(name=state), members=members)

        return {
            name: self._future(self._ask("DescribeGroups", lambda n=name: read(n), request_timeout)) for name in groups
        }

    def delete_records(self, places: list[Any], request_timeout: float = 10.0, **_: Any) -> dict[Any, Future]:
        """Delete what is before offsets."""

        def delete(place: Any) -> Any:
            log = self.broker.partition((place.topic, place.partition))
            if log is None:
                return KafkaError.UNKNOWN_TOPIC_OR_PART
            log.begin = max(log.begin, place.offset)
            return (log.begin,)

        return {
            place: self._future(self._ask("DeleteRecords", lambda p=place: delete(p), request_timeout))
            for place in places
        }

    def list_offsets(self, requests: dict[Any, Any], request_timeout: float = 10.0, **_: Any) -> dict[Any, Future]:
        """Return where partitions begin or end."""
        results = {}
        for place, spec in requests.items():

            def read(place: Any = place, begins: bool = spec is OffsetSpec.earliest()) -> Any:
                log = self.broker.partition((place.topic, place.partition))
                if not self.broker.has_leader((place.topic, place.partition)):
                    return KafkaError.LEADER_NOT_AVAILABLE
                return KafkaError.UNKNOWN_TOPIC_OR_PART if log is None else (0 if begins else log.end,)

            value = self._ask("ListOffsets", read, request_timeout)
            results[place] = self._future(SimpleNamespace(offset=value[0]) if isinstance(value, tuple) else value)
        return results

    def _ask(self, what: str, apply: Any, timeout: float) -> Any:
        try:
            return self._channel.ask(what, apply, timeout)
        except KafkaException as error:
            return error

    def _future(self, value: Any) -> Future:
        if isinstance(value, KafkaException):
            return Future(error=value)
        if isinstance(value, int) and not isinstance(value, bool) and value:
            return Future(error=KafkaException(KafkaError(value)))
        return Future(value)


def offset_of(topic: str, number: int, found: dict[tuple[str, int], tuple[int, str]]) -> Any:
    """Return a committed offset as the client shows it; -1001 for none."""
    offset, metadata = found.get((topic, number), (-1001, ""))
    return TopicPartition(topic, number, offset, metadata=metadata)
