"""Certificates, users and addresses in configuration files: what goes together, and what the clients get."""

import pytest

from headrace.configuration.bridge import BridgeFile
from headrace.configuration.edge import EdgeFile
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError

EDGE = """
[source]
name = "jakarta/bank"
[source.postgresql]
host = "db"
database = "bank"
user = "headrace"
{postgresql}
[interconnect]
{interconnect}
[state]
folder = "state"
"""
BRIDGE = """
[kafka]
bootstrap = "kafka:9092"
{kafka}
[interconnect]
{interconnect}
[streams.bank]
sources = {{ "jakarta/bank" = [0] }}
"""
LAKE = """
[lake]
root = "lake"
[kafka]
bootstrap = "kafka:9092"
{kafka}
[streams.bank]
sources = ["jakarta/bank"]
"""
PAIR = 'certificate = "c.pem"\nkey = "c.key"\n'


@pytest.fixture
def read(tmp_path):
    def read(kind, text, **parts):
        path = tmp_path / "file.toml"
        path.write_text(text.format(**({"postgresql": "", "kafka": "", "interconnect": ""} | parts)))
        return load(path, kind)

    return read


def test_paths_are_relative_to_the_file(read, tmp_path):
    file = read(
        EdgeFile,
        EDGE,
        interconnect=f'url = "amqps://bridge:5671"\nauthority = "certs/a.pem"\n{PAIR}',
        postgresql='sslmode = "verify-full"\nsslrootcert = "db.pem"\nsslcert = "/run/db.crt"\nsslkey = "/run/db.key"',
    )
    assert file.interconnect.authority == tmp_path / "certs" / "a.pem"
    assert file.interconnect.key == tmp_path / "c.key"
    parameters = file.source.postgresql.parameters()
    assert parameters["sslrootcert"] == str(tmp_path / "db.pem")
    assert (parameters["sslcert"], parameters["sslkey"], parameters["sslmode"]) == (
        "/run/db.crt",
        "/run/db.key",
        "verify-full",
    )


def test_one_address_or_several(read):
    assert read(EdgeFile, EDGE, interconnect='url = "amqp://a"').interconnect.urls == ["amqp://a"]
    several = read(EdgeFile, EDGE, interconnect='url = ["amqp://a", "amqps://b"]').interconnect
    assert several.urls == ["amqp://a", "amqps://b"]
    assert read(BridgeFile, BRIDGE, interconnect='url = ["amqp://a", "amqp://b"]').interconnect.urls == [
        "amqp://a",
        "amqp://b",
    ]


@pytest.mark.parametrize(
    ("interconnect", "says"),
    [
        ('url = "amqps://a"\ncertificate = "c.pem"', "'certificate' and 'key' together"),
        (f'url = "amqp://a"\n{PAIR}', "go with amqps:// addresses"),
        ('url = ["amqps://a", "amqp://b"]\nauthority = "a.pem"', "go with amqps:// addresses"),
        ("url = []", "at least one entry"),
        ('url = "http://a"', "interconnect.url"),
    ],
)
def test_an_edge_s_interconnect_that_does_not_fit_is_refused(read, interconnect, says):
    with pytest.raises(ConfigurationError, match=says):
        read(EdgeFile, EDGE, interconnect=interconnect)


@pytest.mark.parametrize(
    ("interconnect", "says"),
    [
        (f'listen = "0.0.0.0:5671"\n{PAIR}', "'certificate', 'key' and 'authority' together"),
        ('listen = "0.0.0.0:5671"\nauthority = "a.pem"', "'certificate', 'key' and 'authority' together"),
        ('listen = "0.0.0.0:5671"\nuser = "u"', "'user' goes with 'url'"),
        ('listen = "0.0.0.0:5671"\nidentities = { "edge" = ["jakarta/bank"] }', "client certificates"),
        ('url = "amqps://a"\nidentities = { "edge" = ["jakarta/bank"] }', "go with 'listen'"),
        (f'listen = "0.0.0.0:5671"\nauthority = "a.pem"\n{PAIR}identities = {{ "edge" = ["*"] }}', "identities"),
    ],
)
def test_a_bridge_s_interconnect_that_does_not_fit_is_refused(read, interconnect, says):
    with pytest.raises(ConfigurationError, match=says):
        read(BridgeFile, BRIDGE, interconnect=interconnect)


SCRAM = 'security_protocol = "SASL_SSL"\nuser = "bridge"\npassword = "env:KAFKA_PASSWORD"\nauthority = "a.pem"'


def test_kafka_s_two_clients_get_the_same_in_their_own_words(read, tmp_path, monkeypatch):
    monkeypatch.setenv("KAFKA_PASSWORD", 'se"cr\\et')
    ours = read(BridgeFile, BRIDGE, kafka=SCRAM, interconnect='listen = ":0"').kafka
    assert ours.librdkafka() == {
        "bootstrap.servers": "kafka:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "bridge",
        "sasl.password": 'se"cr\\et',
        "ssl.ca.location": str(tmp_path / "a.pem"),
    }
    # L35: as text, since executors do not have the file.
    (tmp_path / "a.pem").write_text("the authority")
    lake = read(LakeFile, LAKE, kafka=SCRAM).kafka
    assert lake.java() == {
        "bootstrap.servers": "kafka:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="bridge" password="se\\"cr\\\\et";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "the authority",
    }
    assert 'se"cr' not in repr(ours)


def test_kafka_by_certificate(read, tmp_path):
    for name in ("c.pem", "c.key"):
        (tmp_path / name).write_text(name)
    ours = read(LakeFile, LAKE, kafka=f'security_protocol = "SSL"\n{PAIR}').kafka
    assert ours.librdkafka()["ssl.key.location"] == str(tmp_path / "c.key")
    assert ours.java()["ssl.keystore.key"] == "c.key"
    assert ours.java()["ssl.keystore.certificate.chain"] == "c.pem"


@pytest.mark.parametrize(
    ("kafka", "says"),
    [
        ('security_protocol = "SASL_SSL"', "SASL_SSL"),
        ('user = "u"\npassword = "env:X"', "SASL_SSL"),
        ('authority = "a.pem"', "security_protocol of SSL"),
        ('security_protocol = "TLS"', "security_protocol"),
        ('sasl_mechanism = "GSSAPI"', "sasl_mechanism"),
    ],
)
def test_a_kafka_that_does_not_fit_is_refused(read, kafka, says):
    with pytest.raises(ConfigurationError, match=says):
        read(LakeFile, LAKE, kafka=kafka)
