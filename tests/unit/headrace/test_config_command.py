"""`headrace config`, and the files that `new` writes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bridge.command import bridge
from edge.command import edge
from headrace.configuration import reference
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.command import config
from headrace.configuration.edge import EdgeFile
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError
from spark_jobs.command import lake
from tests.unit.headrace.test_configuration import BRIDGE, EDGE, LAKE


def run(command, *arguments):
    return CliRunner().invoke(command, [str(each) for each in arguments])


@pytest.fixture
def files(tmp_path):
    paths = {}
    for name, text in (("edge", EDGE), ("bridge", BRIDGE), ("lake", LAKE)):
        paths[name] = tmp_path / f"{name}.toml"
        paths[name].write_text(text)
    return paths


def test_check_knows_what_a_file_is_and_says_what_is_wrong_with_each(files, tmp_path):
    right = run(config, "check", *files.values())
    assert right.exit_code == 0
    assert [line.rpartition("ok, ")[2] for line in right.output.splitlines()] == [
        "the file of an edge",
        "the file of a bridge",
        "the file of a lake",
    ]

    files["bridge"].write_text(BRIDGE.replace("listen", "listne"))
    wrong = run(config, "check", "--json", *files.values())
    assert wrong.exit_code == 2
    lines = [json.loads(line) for line in wrong.output.splitlines()]
    assert [each["ok"] for each in lines] == [True, False, True]
    assert "did you mean 'listen'" in lines[1]["error"]

    (tmp_path / "other.toml").write_text("[nothing]\n")
    assert "is of no known kind" in run(config, "check", tmp_path / "other.toml").output


def test_check_names_what_will_be_gone_with_what_to_write(files):
    given = EDGE.replace("heartbeat_seconds = 5", 'heartbeat = "5s"') + '\n[records]\ninterval = "numeric"\n'
    assert given.count("heartbeat =") == 1
    files["edge"].write_text(given)

    plain, scripts = (run(config, "check", *flags, files["edge"]) for flags in ((), ("--json",)))

    assert plain.exit_code == scripts.exit_code == 0
    first, second = plain.output.splitlines()[1:]
    assert first == "  Deprecated: line 1: heartbeat: write heartbeat_seconds = 5"
    line = given.splitlines().index('interval = "numeric"') + 1
    assert second.startswith(f"  Deprecated: line {line}: records.interval: ")
    assert [f"  Deprecated: {each}" for each in json.loads(scripts.output)["deprecated"]] == [first, second]
    # and what is given by the names that stay is not
    assert json.loads(run(config, "check", "--json", files["bridge"]).output)["deprecated"] == []


def test_show_tells_where_each_value_comes_from_and_no_secret(files, monkeypatch):
    monkeypatch.setenv("BANK_PASSWORD", "not to be shown")
    monkeypatch.setenv("BANK_HOST", "elsewhere")
    files["edge"].write_text(EDGE.replace('"db.internal"', '"env:BANK_HOST"').replace("_seconds = 5", ' = "5s"'))

    shown = run(config, "show", files["edge"])

    lines = [" ".join(line.split()) for line in shown.output.splitlines()]
    assert 'source.postgresql.host = "elsewhere" # line 7, env:BANK_HOST' in lines
    assert 'source.postgresql.password = "env:BANK_PASSWORD" # line 10' in lines
    assert "heartbeat_seconds = 5.0 # line 1" in lines
    assert "spool.megabytes = 1024 # default" in lines
    assert "not to be shown" not in shown.output

    fewer = json.loads(run(config, "show", "--json", "--set", files["bridge"]).output)
    assert fewer == {
        "kafka.bootstrap": {"value": "kafka:9092", "from": "line 2"},
        "interconnect.listen": {"value": "0.0.0.0:5672", "from": "line 5"},
        'streams.bank.sources."jakarta/bank"': {"value": [0], "from": "line 8"},
        'streams.bank.sources."london/bank"': {"value": [1], "from": "line 9"},
    }


@pytest.mark.parametrize("kind", ["edge", "bridge", "lake"])
def test_the_schema_has_every_field_and_what_it_takes(kind):
    schema = json.loads(run(config, "schema", kind).output)
    root = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    assert "path" not in root["properties"]
    assert root["additionalProperties"] is False
    if kind == "edge":
        assert root["required"] == ["source", "interconnect", "state"]
        spool = schema["$defs"]["Spool"]["properties"]
        assert spool["megabytes"]["description"].startswith("Largest size of the file")
        assert {"size", "after"} <= spool.keys()


def test_the_documentation_has_the_reference_as_it_is():
    written = Path(__file__).parents[3] / "docs" / "configuration.md"
    assert written.read_text(encoding="utf-8") == reference.markdown(), (
        "run 'headrace config reference > docs/configuration.md'"
    )


@pytest.mark.parametrize(
    ("database", "engine", "port"),
    [
        ("postgresql://me@db/bank", "postgresql", 5432),
        ("mariadb://me@db:3310/shop", "mariadb", 3310),
        ("mysql://me@db", "mysql", 3306),
    ],
)
def test_a_new_edge_file_can_be_read_and_is_never_written_over(tmp_path, database, engine, port):
    path = tmp_path / "edge.toml"
    arguments = ["--source", "jakarta/bank", "--database", database, "--interconnect", "amqps://hq:5671", "-o", path]

    written = run(edge, "new", *arguments)

    assert written.exit_code == 0, written.output
    file = load(path, EdgeFile)
    database_section = getattr(file.source, engine)
    assert (database_section.host, database_section.port, database_section.user) == ("db", port, "me")
    assert file.not_for_production() == []
    path.write_text('profile = "production"\n' + path.read_text())
    assert load(path, EdgeFile).profile == "production"
    again = run(edge, "new", *arguments)
    assert isinstance(again.exception, ConfigurationError)
    assert "is there already" in again.exception.message


@pytest.mark.parametrize(
    ("database", "address"),
    [
        ("sqlserver://me@db/bank", "db:1433/bank (Debezium)"),
        ("oracle://me@db:1522/ORCLCDB", "db:1522/ORCLCDB (Debezium)"),
        ("db2://me@db/BANK", "db:50000/BANK (Debezium)"),
        ("mongodb://me@db/bank", "mongodb://db:27017/ (Debezium)"),
    ],
)
def test_a_new_edge_file_for_a_database_that_debezium_reads_can_be_read_and_is_not_for_production(
    tmp_path, monkeypatch, database, address
):
    monkeypatch.setenv("JAKARTA_BANK_PASSWORD", "s3cret")
    path = tmp_path / "edge.toml"
    written = run(
        edge, "new", "--source", "jakarta/bank", "--database", database, "--interconnect", "amqps://hq:5671", "-o", path
    )
    assert written.exit_code == 0, written.output
    assert "never run against a server by us" in path.read_text()
    made = load(path, EdgeFile)
    assert str(made.source.debezium) == address
    settings = made.source.debezium.settings("initial", "p")
    assert made.source.debezium.connector in settings["connector.class"].lower()
    assert "s3cret" in (settings.get("database.password"), settings.get("mongodb.password"))
    assert made.source.debezium.not_for_production() != []


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--source", "Jakarta", "REGION/NAME"),
        ("--database", "postgresql://me:hush@db/bank", "holds a password"),
        ("--database", "sybase://me@db/bank", "expected postgresql://"),
        ("--database", "postgresql://me@db", "which database"),
    ],
)
def test_a_new_edge_file_is_not_written_of_what_is_wrong(tmp_path, option, value, says):
    given = {"--source": "jakarta/bank", "--database": "postgresql://me@db/bank", "--interconnect": "amqps://hq"}
    given |= {option: value, "-o": str(tmp_path / "edge.toml")}
    refused = run(edge, "new", *(each for pair in given.items() for each in pair))
    assert isinstance(refused.exception, ConfigurationError)
    assert says in refused.exception.message
    assert "hush" not in refused.exception.message
    assert not (tmp_path / "edge.toml").exists()


def test_new_files_of_bridge_and_lake_can_be_read(tmp_path):
    sources = ["--source", "jakarta/bank", "--source", "london/bank", "--bootstrap", "kafka:9092"]
    process = run(bridge, "new", *sources, "-o", tmp_path / "bridge.toml")
    assert process.exit_code == 0, process.output
    assert load(tmp_path / "bridge.toml", BridgeFile).streams["changes"].sources == {
        "jakarta/bank": [0],
        "london/bank": [1],
    }
    process = run(lake, "new", *sources, "--root", "lake", "-o", tmp_path / "lake.toml")
    assert process.exit_code == 0, process.output
    assert load(tmp_path / "lake.toml", LakeFile).streams["changes"].sources == ["jakarta/bank", "london/bank"]


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("amount >= 0 AND (a IN (1, 2) OR length('reflect(') < cast(b AS decimal(10, 2)))", ""),
        ("CASE WHEN `reflect(` THEN (a) ELSE builtin.abs(b) END > 0 -- f(x)", ""),
        ("reflect /* so */ ('java.lang.System', 'exit')", "the function reflect is refused"),
        ("other.abs(a) > 0", "the function other.abs is refused"),
        ("a = 'it''s", "a quote is not closed"),
        ("(a > 0))", "parentheses do not match"),
        (" -- nothing", "it is empty"),
        ("a > 0; SELECT 1", "more than one expression"),
    ],
)
def test_an_expectation_is_checked_as_far_as_it_is_without_spark(files, expression, reason):
    # given
    table = '[streams.bank.tables."public.accounts"]\nexpect = { positive = '
    files["lake"].write_text(f"{LAKE}\n{table}{json.dumps(expression)} }}\n")
    # when
    checked = run(config, "check", files["lake"])
    # then it is named, and no other command is stopped by it
    assert checked.exit_code == (2 if reason else 0), checked.output
    assert reason in checked.output
    assert load(files["lake"], LakeFile).streams["bank"].expected_of("public.accounts") == {"positive": expression}
