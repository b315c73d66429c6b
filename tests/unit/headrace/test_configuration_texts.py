"""What texts of a file stand for: references, durations and sizes; the profile of production."""

import pytest

from headrace.configuration import value_types
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.edge import EdgeFile
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError
from tests.unit.headrace.test_configuration import BRIDGE, EDGE, LAKE


@pytest.fixture
def read(tmp_path):
    def write_and_load(text, kind):
        path = tmp_path / "headrace.toml"
        path.write_text(text)
        return load(path, kind)

    return write_and_load


@pytest.mark.parametrize(
    ("text", "unit", "amount"),
    [
        ("30s", "seconds", 30),
        ("1.5 s", "seconds", 1.5),
        ("250ms", "seconds", 0.25),
        ("2h", "minutes", 120),
        ("7d", "hours", 168),
        ("40ms", "milliseconds", 40),
        ("64KiB", "kilobytes", 64),
        ("64 kb", "kilobytes", 64),
        ("2GiB", "megabytes", 2048),
        ("512KiB", "megabytes", 0.5),
    ],
)
def test_durations_and_sizes_are_turned_into_the_field_s_unit(text, unit, amount):
    assert value_types.convert(text, unit) == amount


@pytest.mark.parametrize(
    ("text", "unit"), [("30", "seconds"), ("30s", "kilobytes"), ("1KiB", "hours"), ("-1s", "seconds"), ("s", "seconds")]
)
def test_what_is_no_duration_or_size_is_refused_with_an_example(text, unit):
    with pytest.raises(ValueError, match="such as '"):
        value_types.convert(text, unit)


def test_a_field_can_be_given_without_its_unit(read):
    text = EDGE.replace("heartbeat_seconds = 5", 'heartbeat = "2min"')
    edge = read(text + '[batches]\nsize = "32KiB"\nwindow = "1GiB"\n[spool]\nsize = "2GiB"\nafter = "1min"\n', EdgeFile)
    assert edge.heartbeat_seconds == 120
    assert (edge.batches.kilobytes, edge.batches.window_megabytes) == (32, 1024)
    assert (edge.spool.megabytes, edge.spool.after_seconds) == (2048, 60)


@pytest.mark.parametrize(
    ("new", "says"),
    [
        ('heartbeat = "2min"\nheartbeat_seconds = 5', r":1: heartbeat: give either 'heartbeat' or 'heartbeat_seconds'"),
        ("heartbeat = 5", r':1: heartbeat: is given as text with its unit, such as heartbeat = "30s"'),
        ('heartbeat = "5 apples"', r":1: heartbeat: '5 apples' is not a duration such as '30s'"),
        ('heartbeat = "0s"', r":1: heartbeat: expected more than 0"),
        ("heartbeet_seconds = 5", r":1: heartbeet_seconds: there is no field .*did you mean 'heartbeat_seconds'"),
        ('heartbeat = "env:HEADRACE_NOT_SET"', r":1: heartbeat: environment variable HEADRACE_NOT_SET is not set"),
    ],
)
def test_a_wrong_unit_is_named_with_its_line(read, new, says):
    with pytest.raises(ConfigurationError, match=says):
        read(EDGE.replace("heartbeat_seconds = 5", new), EdgeFile)


def test_a_size_that_is_no_whole_number_of_its_unit_is_refused(read):
    with pytest.raises(ConfigurationError, match=r"spool.size: expected a whole number"):
        read(EDGE + '[spool]\nsize = "1500KiB"\n', EdgeFile)


def test_any_text_or_number_may_come_from_the_environment_or_a_file(read, tmp_path, monkeypatch):
    monkeypatch.setenv("BANK_HOST", "elsewhere.internal")
    monkeypatch.setenv("BANK_PORT", "6543")
    (tmp_path / "table").write_text("public.accounts\n")
    text = EDGE.replace('"db.internal"', '"env:BANK_HOST"\nport = "env:BANK_PORT"').replace(
        '["public.accounts"]', '["file:table"]'
    )
    edge = read(text, EdgeFile)
    postgresql = edge.source.postgresql
    assert (postgresql.host, postgresql.port, postgresql.tables) == ("elsewhere.internal", "6543", ["public.accounts"])
    assert repr(postgresql.password) == "Secret(env:BANK_PASSWORD)"
    monkeypatch.setenv("BEAT", "2.5")
    assert read(EDGE.replace("= 5", '= "env:BEAT"'), EdgeFile).heartbeat_seconds == 2.5


def test_a_lake_s_root_may_be_a_uri_of_a_file_and_schedules_are_read_as_they_are(read):
    lake = read(LAKE.replace('"lake"', '"file:/data/lake"'), LakeFile)
    assert lake.lake.root == "file:/data/lake"
    with pytest.raises(ConfigurationError, match=r"streams.bank.schedule.timeout: there is no field"):
        read(LAKE.replace('cron = "@hourly"', 'timeout = "2h"'), LakeFile)


SAFE_EDGE = EDGE.replace("amqp://router:5672", "amqps://router").replace(
    'user = "h', 'sslmode = "verify-full"\nuser = "h'
)
PRODUCTION = 'profile = "production"\n'


# O9
def test_production_refuses_what_is_for_trials_and_names_it_all(read):
    with pytest.raises(ConfigurationError) as refused:
        read(PRODUCTION + EDGE, EdgeFile)
    assert 'sslmode = "prefer"' in refused.value.message
    assert "[interconnect] amqp:// has no TLS" in refused.value.message
    with pytest.raises(ConfigurationError) as refused:
        read(PRODUCTION + BRIDGE, BridgeFile)
    for each in ("[streams.bank] replication = 1", "PLAINTEXT", "'listen' without 'certificate'"):
        assert each in refused.value.message
    with pytest.raises(ConfigurationError, match=r"\[sources.jakarta/bank.postgresql\] sslmode"):
        read(PRODUCTION + LAKE, LakeFile)


def test_production_takes_what_is_safe(read):
    assert read(PRODUCTION + SAFE_EDGE, EdgeFile).profile == "production"
    safe = BRIDGE.replace('"kafka:9092"', '"kafka:9093"\nsecurity_protocol = "SSL"').replace(
        "[streams.bank.sources]", "[streams.bank]\nreplication = 3\n[streams.bank.sources]"
    )
    safe = safe.replace('5672"', '5672"\ncertificate = "b.pem"\nkey = "b.key"\nauthority = "a.pem"')
    assert read(PRODUCTION + safe, BridgeFile).streams["bank"].replication == 3
