"""A broker that stores and forwards, with the configuration of infra/artemis, over TLS: one for a session.

Who comes with a certificate is known by it, `headrace certs` made them; who comes without has the password `secret`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.certificates.command import Authority
from tests.servers.artemis import Artemis

SOURCES = ("jakarta/bank", "london/bank")


class SecureArtemis:
    """The broker, and where its certificates are."""

    def __init__(self, folder: Path) -> None:
        self.certificates = folder / "certificates"
        authority = Authority(self.certificates)
        for name in (*SOURCES, "bridge", "jakarta-branch"):
            authority.client(name)
        server = authority.server("artemis", ["localhost"])
        both = folder / "broker.pem"
        both.write_bytes(server.with_suffix(".key").read_bytes() + server.read_bytes())
        self.broker = Artemis(
            folder / "broker",
            tls="sslEnabled=true;keyStoreType=PEM;wantClientAuth=true;saslMechanisms=EXTERNAL,PLAIN;trustStoreType=PEM;"
            f"keyStorePath={both};trustStorePath={authority.certificate_file}",
            users={"bridge": "secret", "jakarta-bank": "secret"},
            # So little that what waits there is in its page files.
            memory_megabytes=2,
        )
        self.broker.start()

    @property
    def url(self) -> str:
        return f"amqps://localhost:{self.broker.port}"

    def pages(self) -> list[Path]:
        """Return the files in which queues go on that do not fit into memory."""
        return list((self.broker.folder / "data" / "paging").glob("*/*.page"))

    def large_messages(self) -> list[Path]:
        """Return the files of large messages."""
        return list((self.broker.folder / "data" / "large").glob("*.msg"))


@pytest.fixture(scope="session")
def artemis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureArtemis]:
    """Yield the broker, shared by the session; a test may kill it, if it starts it again."""
    secure_artemis = SecureArtemis(tmp_path_factory.mktemp("artemis"))
    yield secure_artemis
    secure_artemis.broker.delete()
