"""How to reach the central Kafka cluster: the same fields in the bridge's file and in the lake's."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from headrace.configuration.names import KAFKA_PREFIX
from headrace.configuration.secret import Secret
from headrace.configuration.tls import Certificates
from headrace.configuration.token import callback

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

        Raises ConfigurationError or NotConnected when a secret cannot be had.
        """
        known: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "security.protocol": self.security_protocol}
        if self.token is not None:
            # Once before the client is made: it would wait for ten seconds and not say what is wrong.
            self.token.reveal()
            known |= {"sasl.mechanism": self.sasl_mechanism, "oauth_cb": callback(self.token)}
        if self.user is not None and self.password is not None:
            known |= {
                "sasl.mechanism": self.sasl_mechanism,
                "sasl.username": self.user,
                "sasl.password": self.password.reveal(),
            }
        if self.authority is not None:
            known["ssl.ca.location"] = str(self.authority)
        if self.certificate is not None:
            known |= {"ssl.certificate.location": str(self.certificate), "ssl.key.location": str(self.key)}
        return known

    def java(self) -> dict[str, str]:
        """Return the settings of Kafka's own Java client, the password revealed, as above."""
        known = {"bootstrap.servers": self.bootstrap, "security.protocol": self.security_protocol}
        if self.token is not None:
            # Who fetches the token there is named in [kafka.client] of the lake's file.
            known |= {"sasl.mechanism": self.sasl_mechanism, "sasl.jaas.config": _OAUTH}
        if self.user is not None and self.password is not None:
            module = _MODULES.get(self.sasl_mechanism, "scram.ScramLoginModule")
            known |= {
                "sasl.mechanism": self.sasl_mechanism,
                "sasl.jaas.config": f"org.apache.kafka.common.security.{module} required "
                f"username={_quoted(self.user)} password={_quoted(self.password.reveal())};",
            }
        if self.authority is not None:
            # As text: Spark's executors read Kafka on machines that do not have the file.
            authority = self.authority.read_text(encoding="utf-8")
            known |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}
        if self.certificate is not None and self.key is not None:
            # The client takes a key that is in a file of its own only as text.
            known |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": self.certificate.read_text(encoding="utf-8"),
                "ssl.keystore.key": self.key.read_text(encoding="utf-8"),
            }
        return known


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
