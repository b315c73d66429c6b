"""An interconnect is trusted by its certificate, or nothing is sent to it."""

import datetime as dt

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from headrace.amqp.transport import SSLDomain
from tests.edge.fix_edge import arrive
from tests.rules.waiting import eventually


@pytest.fixture
def certificate(tmp_path):
    """Return the paths of a certificate for localhost, which vouches for itself, and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (tmp_path / "certificate.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (tmp_path / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return tmp_path / "certificate.pem", tmp_path / "key.pem"


@pytest.fixture
def edge(edges, database, interconnects, certificate):
    database.execute("create table t (id int primary key)")
    tls = SSLDomain(SSLDomain.MODE_SERVER)
    tls.set_credentials(*map(str, certificate), None)
    far = interconnects(tls=tls)
    made = edges(database, f"amqps://localhost:{far.port}")
    made.far = far
    made.init()
    return made


def test_trusted_certificate_lets_changes_pass(edge, database, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))

    with edge.running():
        database.execute("insert into t values (1)")
        arrive(edge.far, 1)


def test_certificate_that_nobody_vouches_for_gets_nothing(edge, database, caplog):
    with edge.running(stop_seconds=0):
        database.execute("insert into t values (1)")
        eventually(lambda: "certificate verify failed" in caplog.text)

    assert edge.far.records == []
