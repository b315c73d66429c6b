"""docker-compose.yml, started: Airflow's schedule loads changes of both regions, alerts go back, and every part can be killed.

One stack serves all tests, in this order; the official images of PostgreSQL, Kafka and Artemis are replaced by images made here.
"""

from datetime import UTC, datetime

import pytest

from tests.containers.stack import ONCE
from tests.rules.waiting import eventually

pytestmark = pytest.mark.timeout(3600)
REGIONS = ("jakarta", "london")
#: Sends one record of a topic: arguments are topic, key and value.
PRODUCE = """
import sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": "kafka:9092"})
producer.produce(sys.argv[1], key=sys.argv[2].encode(), value=sys.argv[3].encode())
sys.exit(producer.flush(30))
"""


def bench(stack, region, *words):
    stack.execute(f"{region}-database", "pgbench", "-h", "/tmp", "-U", "postgres", *words, "bank")


def equal(stack):
    """Say whether the lake equals the databases."""
    done = stack.podman.run(
        "exec",
        stack.name("airflow"),
        "sh",
        "-c",
        "headrace verify --config /etc/headrace/lake.toml; echo code $?",
        seconds=600,
    )
    print(done)
    return done.rstrip().endswith("code 0")


def loaded_since(stack, moment):
    eventually(lambda: stack.schedule_ran(moment), 900, every=5, saying=f"a load by Airflow's schedule after {moment}")


def now():
    return datetime.now(UTC).isoformat()


def alert(stack, region, text):
    stack.execute("bridge-broker", "python", "-", f"alerts-{region}", region, text, given=PRODUCE)
    eventually(lambda: text in stack.logs(f"{region}-branch"), 120, every=1, saying=f"{text} at {region}'s branch")


def test_without_a_password_nothing_starts_and_the_error_names_it(stack):
    ended = stack.compose("config", password=None)
    assert ended.returncode != 0
    assert "set PG_PASSWORD in the environment or in .env" in ended.stderr


def test_o1_keys_are_readable_by_their_service_alone(stack):
    for service in stack.services():
        result = stack.execute(
            service, "sh", "-c", "find / -xdev -name authority.key; find /certs -name '*.key'; true", check=False
        )
        keys = [line for line in result.split() if line.endswith(".key")]
        assert "authority.key" not in result, service
        assert len(keys) <= 1, service
        for key in keys:
            who = stack.execute(
                service, "sh", "-c", f"stat -c '%a %u' {key} && id -u && head -c 1 {key} > /dev/null"
            ).split()
            assert who[0] == "600"
            assert who[1] == who[2]
    assert {"jakarta-edge", "artemis", "bridge-1"} <= set(stack.services())
    assert not set(stack.services()) & ONCE


def test_changes_of_both_regions_are_loaded_by_airflows_schedule_and_verify_finds_them_equal(stack):
    began = now()
    for region in REGIONS:
        bench(stack, region, "--initialize", "--quiet")
        bench(stack, region, "--transactions=200", "--client=2")
    loaded_since(stack, began)
    # An edge is at one verification at a time, and Airflow's schedule begins with one.
    eventually(lambda: equal(stack), 600, every=5, saying="verify finds the lake equal")


@pytest.mark.parametrize("region", REGIONS)
def test_an_alert_reaches_its_branch(stack, region):
    alert(stack, region, f"hello {region}")


def test_every_container_can_be_killed_and_nothing_is_lost(stack):
    began = now()
    for service in stack.services():
        for region in REGIONS:
            if service != f"{region}-database":
                bench(stack, region, "--transactions=20")
        stack.kill(service)
    for region in REGIONS:
        bench(stack, region, "--transactions=20")
    loaded_since(stack, began)
    eventually(lambda: equal(stack), 900, every=5, saying="verify is equal after every container was killed")
    for region in REGIONS:
        alert(stack, region, f"again {region}")
