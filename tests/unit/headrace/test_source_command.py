"""`headrace source add`: what a new source needs, and what of it the files have."""

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from headrace import source_command
from headrace.errors import ConfigurationError
from headrace.source_command import source

BRIDGE = """
[kafka]
bootstrap = "127.0.0.1:1"
[interconnect]
{interconnect}
[streams.bank]
topic = "london.bank"
sources = {{ "jakarta/bank" = [0, 1], "london/bank" = [4] }}
"""
LISTEN = 'listen = "0.0.0.0:5671"\ncertificate = "b.pem"\nkey = "b.key"\nauthority = "a.pem"'
LAKE = """
[lake]
root = "lake"
[kafka]
bootstrap = "127.0.0.1:1"
[streams.bank]
sources = ["jakarta/bank", "london/bank"]
"""
EDGE = """
[source]
name = "tokyo/bank"
[source.mariadb]
host = "db"
user = "headrace"
server_id = 4711
[interconnect]
url = "amqps://bridge:5671"
[state]
folder = "state"
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bridge.toml").write_text(BRIDGE.format(interconnect=LISTEN))
    (tmp_path / "lake.toml").write_text(LAKE)

    def add(*arguments):
        done = CliRunner().invoke(source, ["add", *arguments, "--bridge", "bridge.toml"], catch_exceptions=True)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.stdout

    return add


def steps(text):
    return {(step["place"], step["state"]): step for step in json.loads(text)}


def test_a_source_that_nothing_knows_yet(run, tmp_path):
    result = steps(run("tokyo/bank", "--lake", "lake.toml", "--json"))
    assert [place for place, state in result if state == "to do"] == ["edge", "bridge", "lake"]
    bridge = result["bridge", "to do"]
    assert bridge["content"] == '[streams.bank.sources]\n"tokyo/bank" = [5]\n'
    assert bridge["file"] == str(tmp_path / "bridge.toml")
    assert (
        result["lake", "to do"]["content"]
        == '[streams.bank]\nsources = ["jakarta/bank", "london/bank", "tokyo/bank"]\n'
    )
    new = "headrace edge new --source tokyo/bank --database postgresql://headrace@HOST/DATABASE "
    new += "--interconnect amqps://BRIDGE:5671 --output tokyo-bank.toml"
    assert result["edge", "to do"]["run"] == [new]
    assert "create role headrace login replication" in " ".join(result["database", "look"]["run"])
    assert result["certificate", "look"]["run"] == ["headrace certs certs --source tokyo/bank"]


def test_what_the_files_have_is_done_and_the_edges_file_says_which_database(run, tmp_path):
    (tmp_path / "tokyo-bank.toml").write_text(EDGE)
    text = (tmp_path / "bridge.toml").read_text()
    (tmp_path / "bridge.toml").write_text(
        text.replace('"london/bank" = [4]', '"london/bank" = [4], "tokyo/bank" = [7]')
    )
    shown = run("tokyo/bank", "--lake", "lake.toml")
    assert "What tokyo/bank needs; 1 to do by the files:" in shown
    assert "bridge (done): The source owns london.bank[7] by" in shown
    assert "edge (done): tokyo-bank.toml is the file of tokyo/bank." in shown
    assert "binlog monitor on *.* to headrace" in shown
    assert f"in {tmp_path / 'lake.toml'}:" in shown


def test_with_a_router_its_policy_is_named(run, tmp_path):
    (tmp_path / "bridge.toml").write_text(BRIDGE.format(interconnect='url = "amqps://router:5671"'))
    router = steps(run("tokyo/bank", "--json", "--interconnect", "amqps://edge-router:5671"))["router", "look"]
    group = json.loads(router["content"])["tokyo-bank"]
    assert (group["users"], group["targets"]) == ("tokyo/bank", "cdc/tokyo/bank, answers/tokyo/bank")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["Tokyo"], "expected a source's name: REGION/NAME"),
        (["tokyo/bank", "--stream", "sales"], "no stream 'sales'"),
        (["jakarta/bank", "--stream", "sales"], "is in stream bank"),
        (["osaka/bank", "--edge", "tokyo-bank.toml"], "is the file of tokyo/bank, not of osaka/bank"),
    ],
)
def test_what_does_not_fit_is_refused(run, tmp_path, arguments, said):
    (tmp_path / "tokyo-bank.toml").write_text(EDGE)
    with pytest.raises(ConfigurationError, match=said):
        run(*arguments)


def test_several_streams_need_a_name(run, tmp_path):
    text = BRIDGE.format(interconnect=LISTEN) + '[streams.sales]\nsources = { "a/b" = [0] }\n'
    (tmp_path / "bridge.toml").write_text(text)
    with pytest.raises(ConfigurationError, match="several streams: bank, sales"):
        run("tokyo/bank")
    assert '"tokyo/bank" = [1]' in run("tokyo/bank", "--stream", "sales")


def test_looking_shows_what_the_doctors_find_and_one_that_fails(run, monkeypatch, tmp_path):
    (tmp_path / "tokyo-bank.toml").write_text(EDGE)
    findings = [{"check": "Kafka", "level": level, "text": "3 brokers", "fix": ""} for level in ("ok", "warning")]

    def doctor(command, **_options):
        if "edge" in command:
            return SimpleNamespace(stdout="", stderr="\nheadrace: no driver\n", returncode=2)
        return SimpleNamespace(stdout=json.dumps(findings), stderr="", returncode=0)

    monkeypatch.setattr(source_command.subprocess, "run", doctor)
    shown = run("tokyo/bank", "--look")
    assert shown.endswith("bridge doctor, warning: Kafka: 3 brokers\nedge doctor, wrong: doctor: headrace: no driver\n")
