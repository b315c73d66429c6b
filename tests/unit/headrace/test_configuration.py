"""Configuration: a mistake is named with file, line, field and rule; secrets stay references."""

import msgspec
import pytest

from headrace.configuration.bridge import BridgeFile
from headrace.configuration.command import values
from headrace.configuration.databases import MysqlConnection
from headrace.configuration.edge import EdgeFile
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load, parsed
from headrace.configuration.load import read as read_file
from headrace.configuration.secret import Secret
from headrace.errors import ConfigurationError

EDGE = """\
heartbeat_seconds = 5

[source]
name = "jakarta/bank"

[source.postgresql]
host = "db.internal"
database = "bank"
user = "headrace"
password = "env:BANK_PASSWORD"
tables = ["public.accounts"]

[interconnect]
url = "amqp://router:5672"

[state]
folder = "state"
"""

BRIDGE = """\
[kafka]
bootstrap = "kafka:9092"

[interconnect]
listen = "0.0.0.0:5672"

[streams.bank.sources]
"jakarta/bank" = [0]
"london/bank" = [1]
"""

LAKE = """\
[lake]
root = "lake"

[kafka]
bootstrap = "kafka:9092"

[streams.bank]
sources = ["jakarta/bank", "london/bank"]

[streams.bank.schedule]
cron = "@hourly"

[sources."jakarta/bank".postgresql]
host = "db"
database = "bank"
user = "auditor"
"""


@pytest.fixture
def read(tmp_path):
    def write_and_load(text, kind):
        path = tmp_path / "headrace.toml"
        path.write_text(text)
        return load(path, kind)

    return write_and_load


def test_a_whole_edge_file_is_read(read, tmp_path):
    edge = read(EDGE, EdgeFile)
    assert edge.source.name == "jakarta/bank"
    assert edge.source.postgresql.tables == ["public.accounts"]
    assert edge.resolve(edge.state.folder) == tmp_path / "state"


def test_a_whole_bridge_file_is_read(read):
    bridge = read(BRIDGE, BridgeFile)
    assert bridge.topic("bank") == "bank"
    assert bridge.stream_of("london/bank") == "bank"


def test_a_whole_lake_file_is_read(read, tmp_path):
    lake = read(LAKE, LakeFile)
    assert lake.root == str(tmp_path / "lake")
    assert lake.stream("bank").schedule.cron == "@hourly"
    assert lake.sources["jakarta/bank"].postgresql.port == 5432
    other = read(LAKE.replace("postgresql", "mariadb").replace('database = "bank"', 'databases = ["bank"]'), LakeFile)
    assert (other.sources["jakarta/bank"].mariadb.port, other.sources["jakarta/bank"].postgresql) == (3306, None)


def test_authorities_that_cannot_be_read_are_named(tmp_path):
    address = MysqlConnection(host="db", user="auditor", sslmode="verify-full", sslrootcert=str(tmp_path / "none.pem"))
    with pytest.raises(ConfigurationError, match=r"none.pem of db:3306 holds no certificates"):
        address.parameters()


@pytest.mark.parametrize(
    ("kind", "text", "old", "new", "said"),
    [
        (EdgeFile, EDGE, 'host = "db.internal"', "", r":6: source.postgresql.host: .*required field is missing"),
        (
            EdgeFile,
            EDGE,
            "heartbeat_seconds = 5",
            'heartbeat_seconds = "x"',
            r":1: heartbeat_seconds: expected a number, not a text",
        ),
        (EdgeFile, EDGE, "jakarta/bank", "Jakarta", r":4: source.name: .*REGION/NAME"),
        (EdgeFile, EDGE, "env:BANK_PASSWORD", "hunter2", r":10: source.postgresql.password: a secret is given as"),
        (EdgeFile, EDGE, "amqp://", "http://", r":14: interconnect.url: .*begins with amqps://"),
        (EdgeFile, EDGE, 'folder = "state"', 'folder = "state"\nfoldre = 1', r":18: state.foldre: .*there is no field"),
        (BridgeFile, BRIDGE, "[1]", "[0]", r":7: streams.bank: a partition has two owners"),
        (BridgeFile, BRIDGE, "london/bank", "London", r":9: streams.bank.sources.London: .*REGION/NAME"),
        (BridgeFile, BRIDGE, "[1]", "[]", r":9: streams.bank.sources.london/bank: .*at least one entry"),
        (
            BridgeFile,
            BRIDGE,
            'listen = "0.0.0.0:5672"',
            "",
            r":4: interconnect: give exactly one of 'listen' and 'url'",
        ),
        (LakeFile, LAKE, '["jakarta/bank", "london/bank"]', "[]", r"streams.*at least one entry"),
        (LakeFile, LAKE, "postgresql", "oracle", r"sources.jakarta/bank.*there is no field"),
        (
            LakeFile,
            LAKE,
            'user = "auditor"',
            'user = "auditor"\n[sources."jakarta/bank".mariadb]\nhost = "db"\nuser = "auditor"',
            r"sources.jakarta/bank: give exactly one of 'postgresql', 'mariadb' and 'mysql'",
        ),
    ],
)
def test_o13_a_mistake_is_named_with_line_field_and_rule_in_words(read, kind, text, old, new, said):
    with pytest.raises(ConfigurationError, match=said) as caught:
        read(text.replace(old, new, 1), kind)
    assert "hunter2" not in caught.value.message


def test_a_file_that_is_absent_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"nowhere.toml: cannot be read") as caught:
        load(tmp_path / "nowhere.toml", EdgeFile)
    assert "--config" in caught.value.hint


def test_a_file_that_is_not_toml_is_named(read):
    with pytest.raises(ConfigurationError, match="not TOML"):
        read("[source", EdgeFile)


def test_a_source_in_two_streams_is_refused(read):
    with pytest.raises(ConfigurationError, match="a source is in two streams"):
        read(BRIDGE + '[streams.other.sources]\n"london/bank" = [0]\n', BridgeFile)


def test_topics_of_tables_are_named_as_debezium_names_them(read):
    own = "[streams.bank.sources]"
    tables = '[streams.bank]\ntables = { "public.accounts" = "delete", "public.o\'brien läge" = "compact" }\n'
    file = read(BRIDGE.replace(own, tables + own), BridgeFile)
    assert file.topics("bank") == ["bank", "bank.public.accounts", "bank.public.o_brien_l_ge"]
    assert file.tables("bank")["public.accounts"].cleanup == "delete"
    prefixed = read(BRIDGE.replace(own, tables + 'prefix = "server1"\n' + own), BridgeFile)
    assert prefixed.topics("bank")[:2] == ["bank", "server1.public.accounts"]
    twice = '[streams.bank]\ntables = { "public.a b" = "delete", "public.a_b" = "delete" }\n'
    with pytest.raises(ConfigurationError, match="two tables, have one topic"):
        read(BRIDGE.replace(own, twice + own), BridgeFile)
    with pytest.raises(ConfigurationError, match="'prefix' goes with 'tables'"):
        read(BRIDGE.replace(own, '[streams.bank]\nprefix = "server1"\n' + own), BridgeFile)
    ends = read(BRIDGE.replace(own, tables + 'prefix = "server1"\ntransaction_topic = true\n' + own), BridgeFile)
    assert ends.topics("bank")[:3] == ["bank", "server1.transaction", "server1.public.accounts"]
    with pytest.raises(ConfigurationError, match="'transaction_topic' goes with 'tables'"):
        read(BRIDGE.replace(own, "[streams.bank]\ntransaction_topic = true\n" + own), BridgeFile)


def test_a_source_in_no_stream_is_named_with_the_way_to_add_it(read):
    with pytest.raises(ConfigurationError, match="'paris/bank' is in no stream") as caught:
        read(BRIDGE, BridgeFile).stream_of("paris/bank")
    assert "bridge init" in caught.value.hint


def test_a_secret_is_read_late_and_never_shown(monkeypatch, tmp_path):
    secret = Secret("env:HEADRACE_TEST_SECRET")
    monkeypatch.setenv("HEADRACE_TEST_SECRET", "first")
    assert secret.reveal() == "first"
    monkeypatch.setenv("HEADRACE_TEST_SECRET", "renewed")
    assert secret.reveal() == "renewed"
    assert "renewed" not in repr(secret)
    (tmp_path / "key").write_text("from a file\n")
    assert Secret(f"file:{tmp_path / 'key'}").reveal() == "from a file"


@pytest.mark.parametrize("reference", ["env:HEADRACE_NOT_SET", "file:/nowhere/at/all"])
def test_a_secret_that_leads_nowhere_is_named(reference):
    with pytest.raises(ConfigurationError, match=reference.split(":")[1]):
        Secret(reference).reveal()


def test_several_hosts_lead_to_the_one_that_takes_writes(read):
    single = EDGE.replace("env:BANK_PASSWORD", "env:PATH")
    several = single.replace('host = "db.internal"', 'host = "db1,db2"\nport = "5432,5433"')
    parameters = read(several, EdgeFile).source.postgresql.parameters()
    assert (parameters["host"], parameters["port"], parameters["target_session_attrs"]) == (
        "db1,db2",
        "5432,5433",
        "read-write",
    )
    assert "target_session_attrs" not in read(single, EdgeFile).source.postgresql.parameters()


def test_ports_belong_to_hosts(read):
    with pytest.raises(ConfigurationError, match="'port' has 2 ports for 3 hosts"):
        read(EDGE.replace('host = "db.internal"', 'host = "db1,db2,db3"\nport = "1,2"'), EdgeFile)


def test_connection_parameters_reveal_the_password_and_the_text_does_not(read, monkeypatch):
    monkeypatch.setenv("BANK_PASSWORD", "s3cret")
    connection = read(EDGE, EdgeFile).source.postgresql
    assert connection.parameters()["password"] == "s3cret"
    assert "s3cret" not in f"{connection} {connection!r}"


def test_records_of_a_source_that_does_not_follow_them_are_refused(tmp_path):
    file = tmp_path / "edge.toml"
    file.write_text(EDGE + "\n[records]\ntombstones = true\n")
    assert load(file, EdgeFile).records.tombstones
    maria = (
        EDGE.replace("postgresql", "mariadb")
        .replace('tables = ["public.accounts"]', "server_id = 7")
        .replace('database = "bank"\n', "")
    )
    file.write_text(
        maria + '\n[records]\ntombstones = true\ntruncates = false\ndecimal = "precise"\ntime = "connect"\n'
    )
    assert load(file, EdgeFile).records.tombstones
    file.write_text(maria + '\n[records]\nenvelope = "debezium"\nkey_change = "delete-create"\n')
    assert load(file, EdgeFile).records.key_change == "delete-create"
    file.write_text(maria + '\n[records]\nprofile = "debezium"\nbinary = "hex"\n')
    assert load(file, EdgeFile).records.types == "debezium"
    for other in ('messages = ["a"]', 'unavailable = "placeholder"', 'interval = "numeric"', 'time = "isostring"'):
        file.write_text(maria + f"\n[records]\n{other}\n")
        with pytest.raises(ConfigurationError, match="'records' is for 'postgresql'"):
            load(file, EdgeFile)
    file.write_text(maria + '\n[records]\nprofile = "debezium"\nhstore = "text"\n')
    with pytest.raises(ConfigurationError, match="'hstore' of 'records' is for 'postgresql'"):
        load(file, EdgeFile)


def test_files_of_secrets_and_of_authorities_are_relative_to_the_file(tmp_path, monkeypatch):
    """E14."""
    folder = tmp_path / "etc"
    folder.mkdir()
    (folder / "password").write_text("secret\n")
    (folder / "edge.toml").write_text("""
[source]
name = "a/b"
[source.mariadb]
host = "h"
user = "u"
server_id = 1
password = "file:password"
sslmode = "verify-full"
sslrootcert = "authority.pem"
[interconnect]
url = "amqp://127.0.0.1:5672"
[state]
folder = "state"
""")
    monkeypatch.chdir(tmp_path)

    names = load(folder / "edge.toml", EdgeFile).source.mariadb

    assert names.password.reveal() == "secret"
    assert repr(names.password) == "Secret(file:password)"
    assert names.sslrootcert == folder / "authority.pem"


def test_a_profile_of_records_sets_what_the_file_leaves_open(read):
    ordinary = read(EDGE, EdgeFile).records
    assert (ordinary.profile, ordinary.key_change, ordinary.unavailable) == ("headrace", "update", "absent")
    assert (ordinary.truncates, ordinary.tombstones, ordinary.decimal, ordinary.time) == (True, False, "string", "iso")

    records = read(EDGE + '\n[records]\nprofile = "debezium"\ntruncates = true\ndecimal = "string"\n', EdgeFile).records
    assert (records.truncates, records.decimal) == (True, "string")
    assert (records.envelope, records.key_change, records.unavailable) == ("debezium", "delete-create", "placeholder")
    assert (records.tombstones, records.time, records.interval, records.hstore) == (True, "adaptive", "numeric", "json")
    assert all(getattr(records, name) is not None for name in records.__struct_fields__)

    alone = read(EDGE + '\n[records]\nkey_change = "delete-create"\n', EdgeFile).records
    assert (alone.key_change, alone.envelope) == ("delete-create", "headrace")


def test_config_show_has_the_values_of_the_profile(tmp_path):
    file = tmp_path / "edge.toml"
    file.write_text(EDGE + '\n[records]\nprofile = "debezium"\n')
    edge, resolved = read_file(file, EdgeFile)
    shown = {each.place: each for each in values(edge, parsed(file)[1], file.read_text(), resolved)}
    assert (shown["records.key_change"].text, shown["records.key_change"].origin) == ('"delete-create"', "default")


@pytest.mark.parametrize("profile", ["headrace", "debezium"])
def test_records_in_avro_have_the_forms_of_either_profile(read, profile):
    records = read(EDGE + f'\n[records]\nformat = "avro"\nprofile = "{profile}"\n', EdgeFile).records
    plain = read(EDGE + f'\n[records]\nprofile = "{profile}"\n', EdgeFile).records
    assert msgspec.structs.replace(records, format="json") == plain


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ('url = "https://r"\nuser = "a"', "'user' and 'password' together"),
        (
            'url = "https://r"\nuser = "a"\npassword = "env:P"\ntoken = "env:T"',
            "either 'user' and 'password' or 'token'",
        ),
        ('url = "http://r"\ntoken = "env:T"', "goes with an https:// address"),
        ('url = "http://r"\nauthority = "ca.pem"', "go with an https:// address"),
        ('url = "https://me:secret@r"', "registry.url"),
    ],
)
def test_a_registry_takes_one_proof_of_who_asks_and_sends_it_over_tls_alone(read, section, problem):
    with pytest.raises(ConfigurationError, match=problem) as raised:
        read(f"{BRIDGE}\n[registry]\n{section}\n", BridgeFile)
    assert "secret@" not in str(raised.value)
    assert read(f'{BRIDGE}\n[registry]\nurl = "http://localhost:8080/apis/ccompat/v7"\n', BridgeFile).registry
