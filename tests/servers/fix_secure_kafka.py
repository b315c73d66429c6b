"""A broker that trusts nobody: TLS, users by SCRAM, and nothing allowed that is not on a list. One for a session; and three.

Its second listener, in the clear, is the test's own: whoever comes there may do everything. A third one asks for certificates;
that of `bridge` may do everything.
"""

import itertools
import subprocess
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from headrace.certificates.command import Authority
from headrace.configuration.kafka import KafkaConnection
from headrace.configuration.secret import Secret
from infra.local import jars
from infra.local.kafka import Kafka
from infra.local.server import free_port
from tests.rules.waiting import eventually

_numbers = itertools.count(1)


_OAUTH = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="broker";'
)


class Allow(NamedTuple):
    """One line of a list of what a user may do: `Allow("group", "headrace.", "read", prefixed=True)`."""

    kind: str
    name: str
    operation: str
    prefixed: bool = False

    def __str__(self) -> str:
        return f"{self.operation} {self.kind} {self.name}{'*' * self.prefixed}"


#: Of a cluster that goes on without one of its three brokers.
_REPLICATED = {
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    # Far longer than a busy machine has one wait.
    "broker.session.timeout.ms": 9000,
}


class SecureKafka:
    """One broker, or three that ask for certificates and passwords at once; and who may do what there."""

    def __init__(self, folder: Path, brokers: int = 1) -> None:
        self.authority = Authority(folder / "certificates")
        certificate = self.authority.server("kafka", ["localhost"])
        self._keystore = folder / "kafka.pem"
        self._keystore.write_bytes(certificate.with_suffix(".key").read_bytes() + certificate.read_bytes())
        quorum = {number: free_port() for number in range(1, brokers + 1)}
        ports = {number: free_port() for number in quorum}
        self.port, self.mutual_port = ports[1], free_port()
        self._secure = ",".join(f"localhost:{port}" for port in ports.values())
        mutual = {number: self.mutual_port if number == 1 else free_port() for number in quorum}
        self.brokers = [self._broker(folder, quorum, number, ports[number], mutual[number]) for number in quorum]
        self.server = self.brokers[0]
        with ThreadPoolExecutor() as pool:
            list(pool.map(Kafka.start, self.brokers))
        self.admin = AdminClient(
            {"bootstrap.servers": ",".join(each.bootstrap for each in self.brokers), "log_level": 0}
        )

    def _broker(self, folder: Path, quorum: dict[int, int], number: int, port: int, mutual_port: int) -> Kafka:
        plain = free_port()
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        return Kafka(
            folder / f"broker{number}",
            port=plain,
            quorum=quorum,
            number=number,
            heap_megabytes=512 if len(quorum) == 1 else 256,
            settings={
                "listeners": f"PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{quorum[number]},"
                f"SASL_SSL://127.0.0.1:{port},SSL://127.0.0.1:{mutual_port}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_SSL://localhost:{port},"
                f"SSL://localhost:{mutual_port}",
                "listener.name.ssl.ssl.client.auth": "required",
                "listener.name.sasl_ssl.ssl.client.auth": "none" if len(quorum) == 1 else "required",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL",
                "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,OAUTHBEARER",
                "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": module,
                "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": module,
                # Takes tokens without a signature.
                "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": _OAUTH,
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": self._keystore,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": self.authority.certificate_file,
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS;User:CN=bridge",
                # A rate is the mean of 3 seconds instead of 11: a test of quotas need not write more than that first.
                "quota.window.num": 3,
            }
            | (_REPLICATED if len(quorum) > 1 else {}),
        )

    def user(self, allowed: Iterable[Allow], *, mechanism: str = "SCRAM-SHA-512", **changes: Any) -> KafkaConnection:
        """Make a user who may do this and no more; return how it connects."""
        name = f"user-{next(_numbers)}"
        if mechanism == "OAUTHBEARER":
            return self._bearer(name, allowed, changes)
        # The broker takes the reference's file for a password of its own making.
        password = self.authority.folder / f"{name}.password"
        self._set_password(name, mechanism, "a secret")
        self._allow(name, allowed, has_password=True)
        return self._connection(mechanism, {"user": name, "password": Secret(f"file:{password}")} | changes)

    def by_certificate(self, seconds: float) -> KafkaConnection:
        """Return how one connects whose certificate ends after some seconds."""
        certificate = self.authority.client("bridge", seconds / 86_400)
        return KafkaConnection(
            bootstrap=f"localhost:{self.mutual_port}",
            security_protocol="SSL",
            authority=self.authority.certificate_file,
            certificate=certificate,
            key=certificate.with_suffix(".key"),
        )

    def change_password(self, connection: KafkaConnection) -> None:
        """Give a user another password: with the former one nobody connects any more."""
        assert connection.user is not None
        self._set_password(connection.user, connection.sasl_mechanism, "another secret")

    def _set_password(self, name: str, mechanism: str, secret: str) -> None:
        info = ScramCredentialInfo(ScramMechanism[mechanism.replace("-", "_")], 4096)
        credential = UserScramCredentialUpsertion(name, info, secret.encode())
        self.admin.alter_user_scram_credentials([credential])[name].result(60)
        (self.authority.folder / f"{name}.password").write_text(secret)

    def restart(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """End all connections, one broker after the other: all are there again when this returns.

        `meanwhile` is called while one of several is away.
        """
        for each in self.brokers:
            each.stop()
            if len(self.brokers) > 1:
                meanwhile()
            each.start()
            eventually(self._is_whole, 120, every=0.5, saying="all replicas are in sync")

    def _is_whole(self) -> bool:
        topics = self.admin.list_topics(timeout=60).topics.values()
        partitions = [partition for topic in topics for partition in topic.partitions.values()]
        return all(partition.leader > 0 and len(partition.isrs) == len(partition.replicas) for partition in partitions)

    def _bearer(self, name: str, allowed: Iterable[Allow], changes: dict[str, Any]) -> KafkaConnection:
        """Make a user who is known by a token, which a command prints; it ends after a minute."""
        self._allow(name, allowed, has_password=False)
        script = self.authority.folder / f"{name}.sh"
        claims = f'{{\\"sub\\":\\"{name}\\",\\"iat\\":$now,\\"exp\\":$((now + 60))}}'
        encoded = "base64 -w 0 | tr '+/' '-_' | tr -d '='"
        script.write_text(
            f'now=$(date +%s)\nhead=$(printf \'{{"alg":"none"}}\' | {encoded})\n'
            f'body=$(printf "%s" "{claims}" | {encoded})\necho "$head.$body."\n'
        )
        return self._connection("OAUTHBEARER", {"token": Secret(f"command:sh {script}")} | changes)

    def _connection(self, mechanism: str, settings: dict[str, Any]) -> KafkaConnection:
        return KafkaConnection(
            **{
                "bootstrap": self._secure,
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": mechanism,
                "authority": self.authority.certificate_file,
            }
            | settings
        )

    def revoke(self, user: str, allow: Allow) -> None:
        """Take one line of its list from a user."""
        rule = self._rule(AclBindingFilter, user, allow)
        (gone,) = self.admin.delete_acls([rule]).values()
        assert len(gone.result(60)) == 1

    def grant(self, user: str, allow: Allow) -> None:
        """Give a line back to a user."""
        (value,) = self.admin.create_acls([self._rule(AclBinding, user, allow)]).values()
        value.result(60)

    def _rule(self, kind: Any, user: str, allow: Allow) -> Any:
        return kind(
            ResourceType[allow.kind.upper()],
            allow.name,
            ResourcePatternType.PREFIXED if allow.prefixed else ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[allow.operation.upper()],
            AclPermissionType.ALLOW,
        )

    def _allow(self, name: str, allowed: Iterable[Allow], *, has_password: bool) -> None:
        rules = [self._rule(AclBinding, name, allow) for allow in allowed]
        if rules:
            for each in self.admin.create_acls(rules).values():
                each.result(60)
        # Made is not yet known to the broker that is asked next.
        eventually(
            lambda: self._known(name, len(rules), has_password=has_password),
            saying=f"the broker knows {name} and what it may do",
        )

    def _known(self, name: str, rules: int, *, has_password: bool) -> bool:
        if has_password:
            self.admin.describe_user_scram_credentials([name])[name].result(60)
        of_user = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            f"User:{name}",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        return len(self.admin.describe_acls(of_user).result(60)) == rules

    def limit(self, user: str, bytes_per_second: int) -> None:
        """Give a user a quota for what it writes."""
        # Python's client has no call for it.
        run = ["java", "-cp", ":".join(map(str, jars.kafka())), "kafka.admin.ConfigCommand"]
        run += ["--bootstrap-server", self.server.bootstrap, "--alter", "--entity-type", "users", "--entity-name", user]
        subprocess.run(
            [*run, "--add-config", f"producer_byte_rate={bytes_per_second}"],
            check=True,
            capture_output=True,
            timeout=120,
        )

    def topic(self, name: str = "") -> str:
        """Make a topic of one partition; return its name."""
        name = name or f"secure{next(_numbers)}"
        self.admin.create_topics([NewTopic(name, 1, len(self.brokers))])[name].result(60)
        eventually(lambda: name in self.admin.list_topics(timeout=60).topics)
        return name


@pytest.fixture(scope="session")
def secure_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """Yield the broker, shared by the session: do not stop it."""
    made = SecureKafka(tmp_path_factory.mktemp("secure-kafka"))
    yield made
    made.server.delete()


@pytest.fixture
def secure_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """Yield three brokers for one test."""
    made = SecureKafka(tmp_path_factory.mktemp("secure-cluster"), brokers=3)
    yield made
    for each in made.brokers:
        each.delete()


Users = Callable[..., KafkaConnection]
