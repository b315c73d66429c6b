"""Settings of Kafka's clients that a file passes through (`[kafka.client]`), and those that it may not, each with the reason.

What a guarantee rests on, what has a field of its own and what Headrace has tuned is refused by name, so that nothing is
overruled in silence. Everything else is the client's own business: an unknown name is its error.
"""

from collections.abc import Mapping

#: librdkafka writes true and false in lower case, as Java does.
Value = str | bool | int | float

_EXACTLY_ONCE = "exactly-once writing rests on it"
_COMMITTED = "only committed records may be read"
_GROUP = "who serves which source rests on it"
_CHECKED = "brokers' certificates and names are always checked"
_TUNED = "Headrace sets it itself"

#: What neither client may be given, by its name, or by its beginning with a dot at the end.
_BOTH = {
    "enable.idempotence": _EXACTLY_ONCE,
    "transactional.id": _EXACTLY_ONCE,
    "transaction.timeout.ms": _EXACTLY_ONCE,
    "acks": _EXACTLY_ONCE,
    "request.required.acks": _EXACTLY_ONCE,
    "retries": _EXACTLY_ONCE,
    "message.send.max.retries": _EXACTLY_ONCE,
    "max.in.flight": _EXACTLY_ONCE,
    "max.in.flight.requests.per.connection": _EXACTLY_ONCE,
    "enable.gapless.guarantee": _EXACTLY_ONCE,
    "delivery.timeout.ms": _EXACTLY_ONCE,
    "message.timeout.ms": _EXACTLY_ONCE,
    "isolation.level": _COMMITTED,
    "auto.offset.reset": "no record may be passed over",
    "enable.auto.commit": "offsets are committed with the data",
    "auto.commit.interval.ms": "offsets are committed with the data",
    "enable.auto.offset.store": "offsets are committed with the data",
    "group.id": _GROUP,
    "group.instance.id": _GROUP,
    "group.protocol": _GROUP,
    "group.remote.assignor": _GROUP,
    "partition.assignment.strategy": _GROUP,
    "session.timeout.ms": "[sharing] session_seconds has it",
    "heartbeat.interval.ms": _GROUP,
    "bootstrap.servers": "[kafka] bootstrap has it",
    "metadata.broker.list": "[kafka] bootstrap has it",
    "security.protocol": "[kafka] security_protocol has it",
    "ssl.endpoint.identification.algorithm": _CHECKED,
    "allow.auto.create.topics": "'headrace bridge init' makes topics",
}
_LIBRDKAFKA = {
    "sasl.mechanism": "[kafka] sasl_mechanism has it",
    "sasl.mechanisms": "[kafka] sasl_mechanism has it",
    "sasl.username": "[kafka] user has it",
    "sasl.password": "[kafka] password has it",
    "ssl.ca.": "[kafka] authority has it",
    "ssl.certificate.": "[kafka] certificate has it",
    "ssl.key.": "[kafka] key has it",
    "ssl.keystore.": "[kafka] certificate and key have it",
    "enable.ssl.certificate.verification": _CHECKED,
    "client.id": _TUNED,
    "log_level": _TUNED,
    "error_cb": _TUNED,
    "oauth_cb": "[kafka] token has it",
    "sasl.oauthbearer.": "[kafka] token has it",
    "compression.type": _TUNED,
    "compression.codec": _TUNED,
    "linger.ms": _TUNED,
    "queue.buffering.max.ms": _TUNED,
    "batch.size": _TUNED,
    "batch.num.messages": _TUNED,
    "message.max.bytes": _TUNED,
    "queue.buffering.max.messages": _TUNED,
    "queue.buffering.max.kbytes": _TUNED,
    "queued.max.messages.kbytes": _TUNED,
    "fetch.queue.backoff.ms": _TUNED,
    "fetch.wait.max.ms": _TUNED,
    "retry.backoff.ms": _TUNED,
    "enable.partition.eof": _TUNED,
    "socket.timeout.ms": _TUNED,
    "socket.keepalive.enable": _TUNED,
    "reconnect.backoff.ms": _TUNED,
    "reconnect.backoff.max.ms": _TUNED,
    "topic.metadata.refresh.interval.ms": _TUNED,
}
_JAVA = {
    "key.deserializer": "Spark reads bytes",
    "value.deserializer": "Spark reads bytes",
    "interceptor.classes": "Spark refuses it",
    "ssl.truststore.": "[kafka] authority has it",
    "ssl.keystore.": "[kafka] certificate and key have it",
}


def check_librdkafka(settings: Mapping[str, Value], section: str) -> None:
    """Raise ValueError that names the first setting which librdkafka must not be given."""
    _check(settings, _BOTH | _LIBRDKAFKA, section)


def check_java(settings: Mapping[str, Value], section: str) -> None:
    """Raise ValueError that names the first setting which Spark's Kafka client must not be given."""
    _check(settings, _BOTH | _JAVA, section)


def refused(name: str, *, java: bool = False) -> str:
    """Return why a setting is refused; empty when it is not."""
    return _reason(name, _BOTH | (_JAVA if java else _LIBRDKAFKA))


def as_texts(settings: Mapping[str, Value]) -> dict[str, str]:
    """Return settings as both clients take them."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}


def _check(settings: Mapping[str, Value], reasons: Mapping[str, str], section: str) -> None:
    for name in settings:
        if why := _reason(name, reasons):
            raise ValueError(f"'{name}' cannot be set in [{section}]: {why}")
        if name.endswith(("password", "secret")):
            raise ValueError(
                f"'{name}' cannot be set in [{section}]: secrets are given as references in fields of their own"
            )


def _reason(name: str, reasons: Mapping[str, str]) -> str:
    return reasons.get(name) or next(
        (why for refused_name, why in reasons.items() if refused_name.endswith(".") and name.startswith(refused_name)),
        "",
    )
