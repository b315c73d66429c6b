"""How to reach the central Kafka cluster: the same fields in the bridge's file and in the lake's.

`[kafka.client]` passes settings on to Kafka's clients. What a guarantee rests on, what has a field of its own and what Headrace
has tuned is refused by name, so that nothing is overruled in silence; an unknown name is the client's own error.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

from headrace.configuration.secret import Secret, callback
from headrace.configuration.sections import Certificates
from headrace.configuration.value_types import KAFKA_PREFIX

Mechanism = Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"]

_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
_MODULES = {"PLAIN": "plain.PlainLoginModule"}


class KafkaConnection(Certificates, frozen=True, kw_only=True):
    """Where the cluster is, who asks, and whom to trust. The names in brokers' certificates are always checked."""

    bootstrap: Annotated[str, Meta(min_length=1)]
    #: `PLAINTEXT` and `SASL_PLAINTEXT` are for trusted networks only.
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT"] = "PLAINTEXT"
    sasl_mechanism: Mechanism = "SCRAM-SHA-512"
    user: str | None = None
    password: Secret | None = None
    #: With `sasl_mechanism = "OAUTHBEARER"`, in place of user and password: a reference to the token, as a rule a command that
    #: prints one. It is fetched again before it ends.
    token: Secret | None = None
    #: What the names of the bridges' consumer group and transactional ids begin with; environments that share a cluster need
    #: one each.
    prefix: Annotated[str, Meta(pattern=KAFKA_PREFIX)] = "headrace"

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        super().__post_init__()
        if self.sasl_mechanism == "OAUTHBEARER" or self.token is not None:
            if (
                self.sasl_mechanism != "OAUTHBEARER"
                or self.token is None
                or self.user is not None
                or self.password is not None
            ):
                raise ValueError(
                    "'token' goes with sasl_mechanism = \"OAUTHBEARER\", and it with 'token' and no 'user' or 'password'"
                )
            if "SASL" not in self.security_protocol:
                raise ValueError("'token' goes with a security_protocol of SASL_SSL")
        elif ("SASL" in self.security_protocol) != (self.user is not None and self.password is not None):
            raise ValueError("'user' and 'password' go with a security_protocol of SASL_SSL, and it with them")
        if "SSL" not in self.security_protocol and (self.authority or self.certificate):
            raise ValueError("'authority' and 'certificate' go with a security_protocol of SSL or SASL_SSL")

    def not_for_production(self) -> list[str]:
        """Refuse a cluster that is reached without TLS."""
        if self.security_protocol in {"SSL", "SASL_SSL"}:
            return []
        return [f'security_protocol = "{self.security_protocol}" has no TLS: use "SASL_SSL" or "SSL"']

    def librdkafka(self) -> dict[str, Any]:
        """Return librdkafka's settings, the password revealed: for the client only, never for a log.

        Raises ConfigurationError or NotConnected when a secret cannot be obtained.
        """
        settings: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "security.protocol": self.security_protocol}
        if self.token is not None:
            # Once before the client is made: it would wait for ten seconds without reporting what is wrong.
            self.token.reveal()
            settings |= {"sasl.mechanism": self.sasl_mechanism, "oauth_cb": callback(self.token)}
        if self.user is not None and self.password is not None:
            settings |= {
                "sasl.mechanism": self.sasl_mechanism,
                "sasl.username": self.user,
                "sasl.password": self.password.reveal(),
            }
        if self.authority is not None:
            settings["ssl.ca.location"] = str(self.authority)
        if self.certificate is not None:
            settings |= {"ssl.certificate.location": str(self.certificate), "ssl.key.location": str(self.key)}
        return settings

    def java(self) -> dict[str, str]:
        """Return the settings of Kafka's own Java client, the password revealed, as above."""
        settings = {"bootstrap.servers": self.bootstrap, "security.protocol": self.security_protocol}
        if self.token is not None:
            # Who fetches the token there is named in [kafka.client] of the lake's file.
            settings |= {"sasl.mechanism": self.sasl_mechanism, "sasl.jaas.config": _OAUTH}
        if self.user is not None and self.password is not None:
            module = _MODULES.get(self.sasl_mechanism, "scram.ScramLoginModule")
            settings |= {
                "sasl.mechanism": self.sasl_mechanism,
                "sasl.jaas.config": f"org.apache.kafka.common.security.{module} required "
                f"username={_quote(self.user)} password={_quote(self.password.reveal())};",
            }
        if self.authority is not None:
            # As text: Spark's executors read Kafka on machines that do not have the file.
            authority = self.authority.read_text(encoding="utf-8")
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}
        if self.certificate is not None and self.key is not None:
            # The client takes a key that is in a file of its own only as text.
            settings |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": self.certificate.read_text(encoding="utf-8"),
                "ssl.keystore.key": self.key.read_text(encoding="utf-8"),
            }
        return settings


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


#: librdkafka writes true and false in lower case, as Java does.
Value = str | bool | int | float

_EXACTLY_ONCE = "exactly-once writing rests on it"
_COMMITTED = "only committed records may be read"
_GROUP = "who serves which source rests on it"
_CHECKED = "brokers' certificates and names are always checked"
_TUNED = "Headrace sets it itself"
_NEW_TLS = "TLS is 1.2 or newer"

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
    "ssl.protocol": _NEW_TLS,
    "ssl.enabled.protocols": _NEW_TLS,
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
