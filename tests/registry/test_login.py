"""A registry that asks who comes: a bridge waits with the reason, and goes on by itself once its secret is right."""

import asyncio
import base64
import json
import ssl
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from bridge.kafka.client import admin
from bridge.kafka.topics import make
from headrace.certificates.command import Authority
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from infra.local import server
from tests.bridge.bridge_file import bridge_file
from tests.registry.conftest import running
from tests.registry.test_registry import SOURCE, reason, values
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]


@pytest.fixture
def started(tmp_path):
    """Return a function that runs what is left when the test ends."""
    with ExitStack() as ending:
        yield ending.enter_context


def basic(folder, started):
    url = started(running(
        folder, server.free_port(), "-Dquarkus.http.auth.basic=true", "-Dquarkus.security.users.embedded.enabled=true",
        "-Dquarkus.security.users.embedded.plain-text=true", "-Dquarkus.security.users.embedded.users.bridge=right",
        "-Dquarkus.security.users.embedded.roles.bridge=sr-admin", "-Dquarkus.http.auth.permission.all.paths=/*",
        "-Dquarkus.http.auth.permission.all.policy=authenticated",
    ))  # fmt: skip
    secret = folder / "password"
    secret.write_text("wrong")
    return f'url = "{url}"\nuser = "bridge"\npassword = "file:{secret}"', lambda: secret.write_text("right"), "401"


def bearer(folder, started):
    key = rsa.generate_private_key(65537, 2048)
    public = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    url = started(running(
        folder, server.free_port(), "-Dquarkus.oidc.tenant-enabled=true", "-Dquarkus.oidc.application-type=service",
        f"-Dquarkus.oidc.public-key={base64.b64encode(public).decode()}", "-Dquarkus.oidc.client-id=registry",
    ))  # fmt: skip
    secret = folder / "token"
    secret.write_text(token(rsa.generate_private_key(65537, 2048)))
    return f'url = "{url}"\ntoken = "file:{secret}"', lambda: secret.write_text(token(key)), "401"


def certificate(folder, started):
    """Apicurio's own build asks for no certificate: a process of TLS ahead of it does, as a company's gateway."""
    authority, stranger = Authority(folder / "authority"), Authority(folder / "stranger")
    authority.server("registry", ["127.0.0.1"])
    port = server.free_port()
    started(running(folder, port))
    outer = started(demanding(authority, port))
    for maker in (authority, stranger):
        maker.client("bridge")
    own = folder / "bridge.pem"

    def use(maker):
        for suffix in (".pem", ".key"):
            own.with_suffix(suffix).write_bytes((maker.folder / "bridge").with_suffix(suffix).read_bytes())

    use(stranger)
    section = f'url = "https://127.0.0.1:{outer}/apis/ccompat/v7"\nauthority = "{authority.certificate_file}"\n'
    return section + f'certificate = "{own}"\nkey = "{own.with_suffix(".key")}"', lambda: use(authority), "registry"


@pytest.mark.timeout(400)
@pytest.mark.parametrize("way", [basic, bearer, certificate])
def test_a_bridge_that_the_registry_refuses_waits_until_its_secret_is_right(
    database, edges, kafka, topic, inside, tmp_path, started, way
):
    folder = tmp_path / "registry"
    folder.mkdir()
    section, correct, shown = way(folder, started)
    name = topic()
    given = {"topic": name, "more": f"\n[registry]\n{section}\ntimeout_seconds = 5\n"}
    file = load(bridge_file(tmp_path, kafka.bootstrap, {SOURCE: [0]}, **given), BridgeFile)
    make(admin(file.kafka), file)
    bridge = inside(kafka.bootstrap, {SOURCE: [0]}, **given)
    database.execute("create table t (id int primary key, a int)")
    edge = edges(database, f"amqp://127.0.0.1:{bridge.port}", more='[records]\nformat = "avro"')
    edge.init()
    with edge.running():
        database.execute("insert into t values (1, 1)")
        eventually(lambda: shown in reason(bridge), 60, saying="the source waits with the reason")
        assert "right" not in reason(bridge)
        assert values(kafka, name) == []
        correct()
        eventually(
            lambda: sum(value[:1] == b"\0" for value in values(kafka, name)) == 1, 60, saying="the row is in Kafka"
        )


def token(key):
    """Return a JSON Web Token (RFC 7519) that a key has signed."""
    now = int(time.time())
    claims = {"sub": "bridge", "iss": "test", "iat": now, "exp": now + 3600}
    parts = [json.dumps(part).encode() for part in ({"alg": "RS256", "typ": "JWT"}, claims)]
    signed = b".".join(map(unpadded, parts))
    return b".".join((signed, unpadded(key.sign(signed, padding.PKCS1v15(), hashes.SHA256())))).decode()


def unpadded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=")


@contextmanager
def demanding(authority, port):
    """Run what ends TLS ahead of a port, and asks for a certificate of an authority; yield its own port."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.certificate_file)
    context.load_cert_chain(authority.folder / "registry.pem", authority.folder / "registry.key")
    context.verify_mode = ssl.CERT_REQUIRED
    own, ready, ends = server.free_port(), threading.Event(), []

    async def copy(reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def serve(reader, writer):
        there, to = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, to), copy(there, writer))

    async def listen():
        await asyncio.start_server(serve, "127.0.0.1", own, ssl=context)
        loop, end = asyncio.get_running_loop(), asyncio.Event()
        ends.append(lambda: loop.call_soon_threadsafe(end.set))
        ready.set()
        await end.wait()

    thread = threading.Thread(target=lambda: asyncio.run(listen()), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield own
    finally:
        ends[0]()
        thread.join(30)
