"""Deliveries through a broker that stores them while a branch is offline, and is killed meanwhile."""

import json
import subprocess
import sys

import pytest

from tests.amqp.interconnect_ends import pem
from tests.integration.requests.deliveries import is_all_committed, produce, section
from tests.rules.waiting import eventually

KEYS = [f"jakarta/{branch}" for branch in range(5)]


def receive(artemis, name, *arguments):
    given = pem(artemis.certificates, name)
    command = [sys.executable, "-m", "headrace", "receive", "alerts/jakarta", "--connect", artemis.url]
    for option, path in given.items():
        command += [f"--{option}", str(path)]
    return subprocess.run([*command, *arguments], capture_output=True, timeout=300, check=False)


@pytest.mark.long
def test_what_is_delivered_while_a_branch_is_offline_outlives_the_broker_and_comes_in_order(
    kafka, topic, inside, artemis
):
    alerts, stream = topic(2), topic()
    topic(name=f"{alerts}.dead-letters")
    secure = "".join(f'{name} = "{path}"\n' for name, path in pem(artemis.certificates, "bridge").items())
    bridge = inside(
        kafka.bootstrap,
        {"jakarta/bank": [0]},
        topic=stream,
        url=artemis.url,
        secure=secure,
        more=section(alerts),
    )
    group = f"headrace.{stream}.deliveries.alerts"
    produce(kafka.bootstrap, alerts, [(key.encode(), number) for number in range(40) for key in KEYS])
    # London's branch has no role: the broker keeps it too.
    produce(kafka.bootstrap, alerts, [(b"london/0", "kept")])
    eventually(lambda: is_all_committed(kafka.bootstrap, group, alerts), saying="the broker has all of it")

    artemis.broker.kill()
    artemis.broker.start()
    # A branch that stops in the middle, and comes again; another branch gets nothing.
    first = receive(artemis, "jakarta-branch", "--json", "--count", "70", "--timeout", "60")
    assert first.returncode == 0, first.stderr
    assert receive(artemis, "london-bank", "--count", "1", "--timeout", "60").returncode == 3
    produce(kafka.bootstrap, alerts, [(key.encode(), number) for number in range(40, 50) for key in KEYS])
    rest = receive(artemis, "jakarta-branch", "--json", "--count", "180", "--timeout", "60")
    assert rest.returncode == 0, rest.stderr
    lines = [json.loads(line) for line in (first.stdout + rest.stdout).splitlines()]
    assert len({line["id"] for line in lines}) == 250
    for key in KEYS:
        assert [line["json"] for line in lines if line["key"] == key] == list(range(50))
    eventually(lambda: is_all_committed(kafka.bootstrap, group, alerts))
    assert bridge.bridge.deliveries.figures["alerts"].dead_lettered == 0
