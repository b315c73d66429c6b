"""A directory of users (LDAP) in a process of its own: UnboundID's, in memory, with TLS or without."""

import os
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12
from cryptography.x509 import load_pem_x509_certificate

from infra.local.process import Process, tail
from infra.local.server import free_port
from tests.rules.waiting import eventually
from tests.servers.jars import directory

PEOPLE, GROUPS = "ou=people,dc=example,dc=com", "ou=groups,dc=example,dc=com"
_JAVA = ["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
_STORE_PASSWORD = "changeit"


class Directory:
    """A server with a person for each name and password; with a PEM file of a certificate and its key it speaks TLS alone.

    `groups` have people, or groups before them, for members, as each of the usual structures has it. A directory that does not
    take `searches` takes binds alone.
    """

    def __init__(
        self,
        folder: Path,
        people: dict[str, str],
        certificate: Path | None = None,
        *,
        groups: Mapping[str, Sequence[str]] | None = None,
        searches: bool = True,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._folder, self._certificate, self._searches = folder, certificate, searches
        groups = groups or {}
        self._log, self._entries = folder / "directory.log", folder / "people.ldif"
        entries = ["dn: dc=example,dc=com\nobjectClass: domain\ndc: example"]
        entries += [
            f"dn: ou={unit},dc=example,dc=com\nobjectClass: organizationalUnit\nou: {unit}"
            for unit in ("people", "other", "groups")
        ]
        for name, password in people.items():
            unit = "other" if name.startswith("other-") else "people"
            entries.append(
                f"dn: uid={name},ou={unit},dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: {name}\ncn: {name}\nsn: {name}\n"
                f"userPassword: {password}"
                + "".join(f"\nmemberOf: cn={group},{GROUPS}" for group, members in groups.items() if name in members)
            )
        for group, members in groups.items():
            places = [f"cn={name},{GROUPS}" if name in groups else f"uid={name},{PEOPLE}" for name in members]
            lines = [f"dn: cn={group},{GROUPS}", "objectClass: groupOfNames", "objectClass: posixGroup", f"cn: {group}"]
            lines += [f"member: {place}" for place in places] + [f"memberUid: {name}" for name in members]
            entries.append("\n".join(lines))
        self._entries.write_text("\n\n".join(entries) + "\n")
        self._process = Process(folder / "directory.json", self._log, end_signal=signal.SIGKILL, detached=False)

    @property
    def address(self) -> str:
        """Return what `users` says of it."""
        scheme = "ldap" if self._certificate is None else "ldaps"
        return f"{scheme}://localhost:{self.port}/uid={{}},{PEOPLE}"

    def start(self) -> None:
        """Start it, with the people of the beginning; return when it listens."""
        command = ["java", *_JAVA, "-jar", str(directory()), "in-memory-directory-server", "--port", str(self.port)]
        command += ["--baseDN", "dc=example,dc=com", "--ldifFile", str(self._entries)]
        if not self._searches:
            command += ["--allowedOperationType", "bind"]
        if self._certificate is not None:
            command += ["--useSSL", "--keyStorePath", str(self._key_store()), "--keyStorePassword", _STORE_PASSWORD]
            command += ["--keyStoreType", "PKCS12"]
        self._process.launch(command, folder=self._folder, environment=dict(os.environ))
        eventually(self._listens, 120, saying=f"the directory listens; {tail(self._log)}")

    def stop(self) -> None:
        """Kill it."""
        self._process.kill()

    def _key_store(self) -> Path:
        assert self._certificate is not None
        key = load_pem_private_key(self._certificate.with_suffix(".key").read_bytes(), None)
        certificate = load_pem_x509_certificate(self._certificate.read_bytes())
        store = self._folder / "directory.p12"
        encryption = BestAvailableEncryption(_STORE_PASSWORD.encode())
        store.write_bytes(pkcs12.serialize_key_and_certificates(b"directory", key, certificate, None, encryption))  # type: ignore[arg-type]
        return store

    def _listens(self) -> bool:
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", self.port)) == 0
