"""`headrace bridge`, as an operator meets it: topics, positions, bad configuration, and a Kafka or router that is away."""

import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from bridge.kafka.client import admin
from bridge.positions.survey import forget
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from headrace.errors import NeedsOperator
from infra.local.server import free_port
from tests.amqp.edge_double import message, send
from tests.amqp.router_double import Router
from tests.bridge.bridge_file import bridge_file
from tests.edge.source_log import cut, log
from tests.kafka.reading import read_committed
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]


def headrace(*arguments):
    """Run a subcommand of the bridge's; return exit code, output and errors."""
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "bridge", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def routers():
    made = []

    def make(messages, **options):
        made.append(Router(messages, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_init_makes_topics_and_a_second_time_finds_them(kafka, tmp_path):
    path = bridge_file(tmp_path, kafka.bootstrap, {"init/one": [0, 2], "init/two": [1]}, topic="made-by-init")
    assert headrace("init", "--config", path)[:2] == (
        0,
        "topic made-by-init: 3 partitions, created\nsource init/one: made-by-init[0, 2]\nsource init/two: made-by-init[1]\n",
    )
    assert headrace("init", "--config", path)[1].startswith("topic made-by-init: 3 partitions, already there\n")
    wider = bridge_file(tmp_path, kafka.bootstrap, {"init/one": [0, 2], "init/two": [4]}, topic="made-by-init")
    assert headrace("init", "--config", wider)[1].startswith("topic made-by-init: 5 partitions, grown from 3\n")
    code, out, _ = headrace("topics", "--config", path, "--json")
    assert code == 0
    assert [(each["partition"], each["source"], each["in_kafka"]) for each in json.loads(out)] == [
        (0, "init/one", True),
        (2, "init/one", True),
        (1, "init/two", True),
    ]


def test_run_refuses_topics_that_are_missing_too_small_or_compacted(kafka, topic, tmp_path):
    missing = bridge_file(tmp_path, kafka.bootstrap, {"no/topic": [0]}, topic="never-made")
    code, _, said = headrace("run", "--config", missing)
    assert code == 3
    assert "topic 'never-made' is not in Kafka" in said
    assert "headrace bridge init" in said
    small = bridge_file(tmp_path, kafka.bootstrap, {"no/room": [5]}, topic=topic(partitions=2))
    code, _, said = headrace("run", "--config", small)
    assert code == 3
    assert "has 2 partitions, its sources own 6" in said
    compacted = bridge_file(tmp_path, kafka.bootstrap, {"no/log": [0]}, topic=topic(cleanup_policy="compact"))
    code, _, said = headrace("run", "--config", compacted)
    assert code == 3
    assert "cleanup.policy=compact" in said


def test_a_bridge_that_is_held_is_not_ready_and_shows_why_until_it_is_stopped_o6_o7(kafka, topic, outside, tmp_path):
    at = f"127.0.0.1:{free_port()}"
    path = bridge_file(tmp_path, kafka.bootstrap, {"held/bank": [5]}, topic=topic(partitions=2), metrics=at)
    bridge = outside(path=path, options=("--hold",))

    def answer():
        with urllib.request.urlopen(f"http://{at}/metrics", timeout=5) as found:
            text = found.read().decode()
        return text if "headrace_bridge_held" in text else ""

    metrics = eventually(answer, saying="the bridge is held")
    assert 'headrace_bridge_held{exit_code="3",reason="needs-operator"} 1.0' in metrics
    assert 'headrace_bridge_state{source="held/bank",state="needs an operator"} 1.0' in metrics
    with urllib.request.urlopen(f"http://{at}/health/live", timeout=5) as live:
        assert live.status == 200
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://{at}/health/ready", timeout=5)
    assert refused.value.code == 503
    assert "has 2 partitions, its sources own 6" in refused.value.read().decode()
    shown = subprocess.run(
        [sys.executable, "-m", "headrace", "status", "--config", str(path), "--json"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert shown.returncode == 1
    assert "needs an operator" in shown.stdout
    # then it ends as it would have ended
    assert bridge.terminate() == 3


def test_run_refuses_an_address_that_is_taken(kafka, topic, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        path = bridge_file(tmp_path, kafka.bootstrap, {"taken/port": [0]}, topic=topic(), port=port)
        code, _, said = headrace("run", "--config", path)
    assert code == 2
    assert f"cannot listen on 127.0.0.1:{port}" in said


def test_positions_show_what_is_committed_and_by_whom(kafka, topic, inside, tmp_path):
    name, source = topic(partitions=2), "shown/bank"
    (batch,) = cut(source, log(source, 20), lambda: 20)
    bridge = inside(kafka.bootstrap, {source: [0], "shown/other": [1]}, topic=name)
    assert send(bridge.port, f"cdc/{source}", [message(batch)])[0].state == "accepted"
    path = bridge_file(tmp_path, kafka.bootstrap, {source: [0], "shown/silent": [1]}, topic=name)
    code, out, _ = headrace("positions", "--config", path, "--json")
    assert code == 0
    bank, silent = json.loads(out)
    assert (bank["source"], bank["position"], bank["bridge"]) == (source, str(batch.last), bridge.bridge.name)
    assert bank["epoch"] == "2023-11-14T22:13:20+00:00"
    # The first transaction took the source over, without a record; the second has twenty.
    assert bank["offsets"] == [{"topic": name, "partition": 0, "offset": 20}]
    assert (silent["source"], silent["position"], silent["offsets"]) == ("shown/silent", None, [])
    _, out, _ = headrace("positions", "--config", path)
    assert str(batch.last) in out


def test_a_source_whose_partitions_were_changed_is_moved_and_a_retired_one_forgotten_on_purpose_only(
    kafka, topic, inside, tmp_path, caplog, monkeypatch
):
    name, source, retired, other = topic(partitions=3), "moving/bank", "moving/retired", "moving/other"
    rows = log(source, 40)
    one, two = cut(source, rows, lambda: 20)
    (last,) = cut(retired, log(retired, 20), lambda: 20)
    former = inside(kafka.bootstrap, {source: [0], retired: [2]}, topic=name)
    assert send(former.port, f"cdc/{source}", [message(one)])[0].state == "accepted"
    assert send(former.port, f"cdc/{retired}", [message(last)])[0].state == "accepted"
    # a source that may be served is not forgotten
    without = load(bridge_file(tmp_path, kafka.bootstrap, {source: [1]}, topic=name), BridgeFile)
    client = admin(without.kafka)
    monkeypatch.setattr("bridge.positions.survey.STOPPING_SECONDS", 0.1)
    with pytest.raises(NeedsOperator, match=r"bridges of the group .* are running"):
        forget(without, client, retired)
    monkeypatch.undo()
    with pytest.raises(NeedsOperator, match=f"{source} is in "):
        forget(without, client, source)
    former.stop()
    # when
    bridge = inside(kafka.bootstrap, {source: [1]}, topic=name)
    eventually(lambda: bridge.figures(source)["state"] == "needs an operator")
    # then
    reported = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    (said,) = [line for line in reported if source in line]
    assert f"owned {name}[0] until now, and the bridge's file names {name}[1]" in said
    bridge.stop()
    path = bridge_file(tmp_path, kafka.bootstrap, {source: [1]}, topic=name)
    code, out, _ = headrace("move", "--config", path, source)
    assert (code, out) == (0, f"source {source}: goes on after {one.last} in {name}[1]\n")
    expected = f"source {retired}: forgotten; it was at {last.last} in {name}[2], which are free now\n"
    assert headrace("forget", "--config", path, retired)[:2] == (0, expected)
    with pytest.raises(NeedsOperator, match="holds no position"):
        forget(without, client, retired)
    # whose partition another one may have
    bridge = inside(kafka.bootstrap, {source: [1], other: [2]}, topic=name)
    (first,) = cut(other, log(other, 20), lambda: 20)
    assert send(bridge.port, f"cdc/{other}", [message(first)])[0].state == "accepted"
    assert [outcome.state for outcome in send(bridge.port, f"cdc/{source}", [message(one), message(two)])] == [
        "accepted"
    ] * 2
    records = [(record.partition, record.value) for record in read_committed(kafka.bootstrap, name)]
    assert [each for each in records if each[0] < 2] == [
        *((0, row.value) for row in rows[:20]),
        *((1, row.value) for row in rows[20:]),
    ]


def test_run_waits_for_a_kafka_that_is_away_and_says_so_once(outside):
    bridge = outside(f"127.0.0.1:{free_port()}", {"away/bank": [0]}, topic="bank")
    eventually(lambda: "does not answer" in bridge.said())
    assert bridge.process.poll() is None
    assert bridge.terminate() == 0
    assert bridge.said().count("does not answer") == 1


def test_connecting_out_receives_each_source_from_its_own_address(kafka, topic, inside, routers):
    name, first, two = topic(partitions=2), "out/one", "out/two"
    logs = {first: log(first, 100), two: log(two, 80, seed=3)}
    sent = {f"cdc/{source}": [message(each) for each in cut(source, rows, lambda: 9)] for source, rows in logs.items()}
    router = routers(sent)
    inside(kafka.bootstrap, {first: [0], two: [1]}, topic=name, url=f"amqp://127.0.0.1:{router.port}", credit=4)
    for address, messages in sent.items():
        eventually(lambda address=address, messages=messages: router.outcomes[address] == ["accepted"] * len(messages))
    records = read_committed(kafka.bootstrap, name)
    assert [record.value for record in records if record.partition == 0] == [row.value for row in logs[first]]
    assert [record.value for record in records if record.partition == 1] == [row.value for row in logs[two]]
    assert router.capabilities == ["queue", "queue"]


def test_connecting_out_connects_again_after_a_cut_and_goes_on(kafka, topic, inside, routers):
    name, source = topic(), "again/bank"
    rows = log(source, 4_000)
    address = f"cdc/{source}"
    router = routers({address: [message(each) for each in cut(source, rows, lambda: 5)]})
    inside(kafka.bootstrap, {source: [0]}, topic=name, url=f"amqp://127.0.0.1:{router.port}", credit=8)
    for cuts in (1, 2):
        eventually(lambda cuts=cuts: len(router.outcomes[address]) > 40 * cuts)
        router.cut()
        eventually(lambda cuts=cuts: router.connected > cuts)
    eventually(lambda: len(router.outcomes[address]) == 800, 180)
    assert set(router.outcomes[address]) == {"accepted"}
    assert [record.value for record in read_committed(kafka.bootstrap, name)] == [row.value for row in rows]


def test_a_router_that_forbids_one_address_holds_up_no_other(kafka, topic, inside, routers, caplog):
    name, kept = topic(partitions=2), "kept/open"
    (batch,) = cut(kept, log(kept, 20), lambda: 20)
    router = routers({f"cdc/{kept}": [message(batch)]}, forbidden="cdc/shut/out")
    inside(kafka.bootstrap, {kept: [0], "shut/out": [1]}, topic=name, url=f"amqp://127.0.0.1:{router.port}")
    eventually(lambda: router.outcomes[f"cdc/{kept}"] == ["accepted"])
    eventually(lambda: "amqp:unauthorized-access not for you" in caplog.text)
    assert router.connected == 1


def test_a_router_that_is_away_is_waited_for(kafka, topic, inside, caplog):
    port = free_port()
    name, source = topic(), "early/bank"
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name, url=f"amqp://127.0.0.1:{port}")
    eventually(lambda: "refused" in caplog.text)
    bridge.serves(source)


def test_a_row_that_was_too_large_is_listed_and_comes_by_its_key_once_the_limit_is_raised(
    kafka, topic, inside, edges, database, tmp_path
):
    # Given a stream with a change whose row was too large, among others, one of which only talks about such things.
    name, source = topic(max_message_bytes=4 << 20), "jakarta/bank"
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name)
    path = bridge_file(tmp_path, kafka.bootstrap, {source: [0]}, topic=name)
    database.execute("create table documents (id int primary key, body text)")
    limits = '[records]\nlargest_megabytes = 1\non_too_large = "dead-letter"'
    edge = edges(database, f"amqp://127.0.0.1:{bridge.port}", more=limits)
    edge.init()
    talk = '"too_large":{"bytes":1,"sha256":"x"}'

    def documents():
        records = [json.loads(record.value) for record in read_committed(kafka.bootstrap, name)]
        return [(value["op"], value["after"]) for value in records if "op" in value]

    with edge.running():
        database.execute("insert into documents values (1, %s), (2, repeat('x', 2000000)), (3, 'small')", [talk])
        eventually(lambda: len(documents()) == 3, saying="the changes stand in Kafka")

    # When they are asked for, then there is the one, with its place, key and size.
    code, out, _ = headrace("dead-letters", "bank", "--config", path, "--json")
    assert code == 0
    (letter,) = json.loads(out)
    reported = {"state": "open", "source": source, "table": "public.documents", "op": "c", "key": '{"id":2}'}
    assert letter | reported == letter
    assert (letter["bytes"] > 2_000_000, len(letter["sha256"]), letter["offset"]) == (True, 64, f"{name}[0]@2")
    assert letter["position"].endswith("/00000001")
    assert "public.documents" in headrace("dead-letters", "bank", "--config", path)[1]
    code, _, said = headrace("dead-letters", "other", "--config", path)
    assert (code, "no stream 'other'" in said) == (2, True)

    # When it is given to the edge, then it is refused while the limit would make it one again, and comes when it is raised.
    again = edge.command("snapshot", "--dead-letters", "-", input=out)
    assert (again.returncode, "largest_megabytes = 2" in again.stderr) == (2, True)
    edge.path.write_text(edge.path.read_text().replace("largest_megabytes = 1", "largest_megabytes = 2"))
    again = edge.command("snapshot", "--dead-letters", "-", input=out)
    assert "1 of public.documents" in again.stdout, again.stderr
    with edge.running():
        eventually(lambda: documents()[3:] == [("r", {"id": 2, "body": "x" * 2_000_000})], saying="the row comes")

    # And it is open no more.
    assert "no open dead letters" in headrace("dead-letters", "bank", "--config", path, "--open")[1]
    assert json.loads(headrace("dead-letters", "bank", "--config", path, "--json")[1]) == [
        letter | {"state": "replaced"}
    ]
