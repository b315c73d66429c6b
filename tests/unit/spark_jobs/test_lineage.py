"""Events of lineage are what OpenLineage's published JSON Schema asks for, and nothing of them fails a load."""

import json
import socket
import sys
from pathlib import Path
from time import monotonic

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

import spark_jobs
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError, NotConnected
from spark_jobs import lineage
from spark_jobs import load as job
from spark_jobs.bronze import load as bronze
from spark_jobs.silver.load import SilverReport
from tests.unit.headrace.test_configuration import LAKE

#: As they are published at openlineage.io/spec, and our own.
SCHEMAS = [*Path(__file__).parents[2].joinpath("lake", "openlineage").glob("*.json")]
SCHEMAS.append(Path(spark_jobs.__file__).with_name("positions_facet.json"))
J = "jakarta/bank"


@pytest.fixture
def lake(tmp_path):
    """Return a function that makes a lake's file with a place for events."""

    def make(settings='file = "events.jsonl"'):
        (tmp_path / "lake.toml").write_text(f"{LAKE}\n[lineage]\n{settings}\n")
        return load(tmp_path / "lake.toml", LakeFile)

    return make


def check(event):
    """Raise ValidationError unless an event, and each of its facets, is as its schema says."""
    schemas = [json.loads(file.read_text()) for file in SCHEMAS]
    registry = Registry().with_resources((schema["$id"], Resource.from_contents(schema)) for schema in schemas)

    def validate(place, instance):
        Draft202012Validator(
            {"$ref": place}, registry=registry, format_checker=Draft202012Validator.FORMAT_CHECKER
        ).validate(instance)

    validate("https://openlineage.io/spec/2-0-2/OpenLineage.json", event)
    facets = dict(event["run"].get("facets", {}))
    for dataset in event.get("outputs", []):
        facets |= dataset["facets"] | dataset["outputFacets"]
    for facet in facets.values():
        validate(facet["_schemaURL"], facet)
    return facets


def test_a_load_is_a_run_with_versions_and_positions_as_the_schemas_say(lake, tmp_path):
    # given
    done = SilverReport(
        stream="bank",
        load=7,
        ranges={J: ("01/02", "01/05")},
        changes={"public.accounts": 3, "public.copied": 2},
        versions={"public.accounts": 12, "public.copied": None},
        seconds=2.5,
    )
    # when
    lineage.send_load(lake(), "bank", done)
    with pytest.raises(NotConnected), lineage.failure_sent(lake(), "bank"):
        raise NotConnected("Kafka does not answer")
    # then
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [event["eventType"] for event in events] == ["START", "COMPLETE", "START", "FAIL"]
    facets = [check(event) for event in events]
    assert facets[1]["version"]["datasetVersion"] == "12"
    assert facets[1]["outputStatistics"]["rowCount"] == 3
    assert facets[1]["headrace_positions"]["load"] == 7
    assert facets[1]["headrace_positions"]["sources"] == [{"source": J, "after": "01/02", "upto": "01/05"}]
    assert facets[3]["errorMessage"]["message"] == "Kafka does not answer"
    assert events[0]["run"]["runId"] == events[1]["run"]["runId"] != events[2]["run"]["runId"]
    (output,) = events[1]["outputs"]
    assert output["namespace"] == "file"
    assert output["name"].endswith("/silver/bank/public.accounts")


def test_no_load_fails_where_events_cannot_be_sent(lake, monkeypatch, caplog):
    done = SilverReport(stream="bank", load=1)
    lineage.send_load(lake('url = "http://127.0.0.1:1"'), "bank", done)
    assert "is not known to http://127.0.0.1:1" in caplog.text
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    lineage.send_load(lake(), "bank", done)
    assert "openlineage-python is not installed" in caplog.text
    with pytest.raises(ConfigurationError, match="https"):
        lake('url = "http://elsewhere"\napi_key = "env:KEY"')


def test_a_load_does_not_wait_for_a_server_that_keeps_it_waiting(lake, monkeypatch, caplog):
    monkeypatch.setattr(lineage, "_CLOSE_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        # It takes the connection, and answers nothing.
        began = monotonic()
        lineage.send_load(
            lake(f'url = "http://127.0.0.1:{server.getsockname()[1]}"'), "bank", done=SilverReport(stream="bank")
        )
        assert monotonic() - began < 15
    assert "not waited for any more" in caplog.text


def test_a_load_whose_bronze_fails_is_a_run_that_failed(lake, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise NotConnected("Kafka does not answer")

    monkeypatch.setattr(bronze, "load", fail)
    with pytest.raises(NotConnected):
        job.run(None, lake(), "bank")
    events = [json.loads(line)["eventType"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert events == ["START", "FAIL"]


def test_names_of_tables_are_those_that_openlineage_has_for_their_stores():
    assert lineage._place("/srv/lake/silver/s/a.b") == ("file", "/srv/lake/silver/s/a.b")
    assert lineage._place("s3a://bucket/lake/silver/s/a.b") == ("s3://bucket", "lake/silver/s/a.b")
    assert lineage._place("file:///srv/a%20lake/s/a") == ("file", "/srv/a%20lake/s/a")
    # Names of tables are as the source has them.
    assert lineage._place("/srv/lake/silver/s/a.b#1?%20") == ("file", "/srv/lake/silver/s/a.b#1?%20")
    assert lineage._place("s3a://bucket/lake/silver/s/a.b#1") == ("s3://bucket", "lake/silver/s/a.b#1")
