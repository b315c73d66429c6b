"""`[source.debezium]`: what is refused in a file, what Debezium gets, and what `doctor` finds."""

import msgspec
import pytest

from edge.doctor import examine
from headrace.configuration.databases import UNPROVEN
from headrace.configuration.edge import EdgeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError
from headrace.findings import run
from tests.unit.edge.debezium import engine_frames, java_double


def test_debezium_gets_the_files_properties_its_secrets_and_what_the_edge_depends_on(read):
    names = read('"poll.interval.ms" = 50\n"read.only" = true').source.debezium
    settings = names.settings("no_data", "p")
    wanted = {
        "database.port": "5433",
        "poll.interval.ms": "50",
        "read.only": "true",
        "slot.name": "own",
        "publication.name": "headrace",
        "database.password": "s3cret",
        "snapshot.mode": "no_data",
        "provide.transaction.metadata": "true",
        "unavailable.value.placeholder": "p",
        # A quarter of its memory.
        "max.queue.size.in.bytes": str(128 << 20),
    }
    assert {name: settings[name] for name in wanted} == wanted
    assert str(names) == "db:5433/bank (Debezium)"
    assert "s3cret" not in repr(names)


@pytest.mark.parametrize(
    ("properties", "more", "said"),
    [
        ('"snapshot.mode" = "when_needed"', "", "set 'mode' of 'snapshot'"),
        # Debezium's own modes that copy again.
        ("", '[snapshot]\nmode = "when_needed"', "mode"),
        ("", '[snapshot]\nmode = "always"', "mode"),
        ('"offset.storage" = "x"', "", "the edge sets it"),
        ('"transforms.unwrap.type" = "x"', "", "the edge sets it"),
        ('"signal.data.collection" = "x"', "", "the edge sets it"),
        ('"lsn.flush.mode" = "manual"', "", "the edge sets it"),
        ('"flush.lsn.source" = false', "", "the edge sets it"),
        ('"slot.seek.to.known.offset.on.start" = true', "", "the edge sets it"),
        ('"transaction.metadata.factory" = "x"', "", "the edge sets it"),
        ('"event.converting.failure.handling.mode" = "warn"', "", "the edge sets it"),
        ('"database.connection.adapter" = "xstream"', "", "one of logminer, logminer_unbuffered"),
        ('"database.connection.adapter" = "olr"', "", "one of logminer, logminer_unbuffered"),
        ('"database.ssl.password" = "x"', "", "give its reference in 'secrets'"),
        ('"database.names" = "a,b"', "", "each its own edge"),
        ('"mongodb.connection.string" = "mongodb://u:p@h/"', "", "its password is a secret"),
        ("", '[records]\nprofile = "debezium"', "not for 'debezium' sources"),
        ("", "[records]\ntruncates = false", "not for 'debezium' sources"),
        ("", '[records]\nformat = "avro"', "not for 'debezium' sources"),
        ("", '[source.mysql]\nhost = "h"\nuser = "u"\nserver_id = 1', "give exactly one of"),
    ],
)
def test_what_would_not_be_followed_is_refused(read, properties, more, said):
    with pytest.raises(ConfigurationError) as error:
        read(properties, more)
    assert said in error.value.message


@pytest.mark.parametrize("connector", ["postgres", "mysql", "mariadb", "sqlserver", "oracle", "db2", "mongodb"])
def test_messages_without_a_change_are_left_out_by_proven_connectors_alone(read, tmp_path, connector):
    """A file with it that worked was refused."""
    config = read('"skip.messages.without.change" = true')
    assert config.source.debezium.settings("no_data", "p")["skip.messages.without.change"] == "true"
    path = tmp_path / "edge.toml"
    path.write_text(path.read_text().replace('"postgres"', f'"{connector}"') + "\n[spool]\nmegabytes = 0\n")
    if connector in UNPROVEN:
        with pytest.raises(ConfigurationError, match=r"'skip.messages.without.change' is not for 'properties'"):
            load(path, EdgeFile)
    else:
        load(path, EdgeFile)


def test_how_the_server_is_reached_and_how_much_is_read_at_once_is_no_other_properties(read):
    plain = read().source.debezium
    secrets = {
        "database.password": plain.secrets["database.password"],
        "database.sslpassword": plain.secrets["database.password"],
    }
    more = {
        "database.hostname": "elsewhere",
        "database.port": 1,
        "database.user": "u",
        "database.sslmode": "verify-full",
        "database.sslrootcert": "/ca",
        "connection.timeout.ms": 5,
        "max.batch.size": 5,
        "max.queue.size": 50,
        "poll.interval.ms": 5,
        "snapshot.fetch.size": 5,
    }
    moved = msgspec.structs.replace(plain, properties=plain.properties | more, secrets=secrets)
    assert moved.fingerprint() == plain.fingerprint()
    for name in ("table.include.list", "slot.name", "database.dbname"):
        other = msgspec.structs.replace(plain, properties=plain.properties | {name: "x"})
        assert other.fingerprint() != plain.fingerprint()


@pytest.mark.parametrize(
    ("said", "level", "text"),
    [
        ('openjdk version "25.0.2" 2026-01-20', "ok", "is Java 25"),
        ('openjdk version "17.0.15" 2025-04-15', "wrong", "older than Java 21"),
        ('java version "1.8.0_292"', "wrong", "older than Java 21"),
        ("no version", "wrong", "older than Java 21"),
    ],
)
def test_doctor_looks_at_java_and_at_the_jars(read, tmp_path, monkeypatch, said, level, text):
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("HEADRACE_JARS", str(tmp_path / "none"))
    names = read(java=java).source.debezium
    jars, found = run((examine.look_at_jars, examine.look_at_java), names)
    assert (found.check, found.level) == ("java", level)
    assert text in found.text
    assert (jars.level, "headrace jars debezium-postgres" in jars.fix) == ("wrong", True)


def test_doctor_asks_the_server_by_the_engine_and_makes_nothing_there(read, tmp_path, monkeypatch):
    monkeypatch.setattr(examine, "class_path", lambda _connector: [tmp_path / "a.jar"])
    settings = {"binlog_format": "ROW", "gtid_mode": "OFF", "server_id": "1"}
    java = java_double.write(tmp_path, f"line()\nsay(hello(settings={settings}))\nassert line() == ''")
    result = list(examine.look_at_server(read(java=java).source.debezium))
    assert [(each.check, each.level) for each in result] == [
        ("server", "ok"),
        ("binlog_format", "ok"),
        ("gtid_mode", "wrong"),
    ]
    assert engine_frames.SYSTEM in result[0].text
    assert "set global gtid_mode = 'ON'" in result[2].fix


def test_a_java_that_is_not_there_is_found(read):
    (found,) = examine.look_at_java(read(java="/nowhere/java").source.debezium)
    assert (found.level, "21" in found.fix) == ("wrong", True)
