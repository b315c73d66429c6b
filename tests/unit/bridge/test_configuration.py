"""The bridge's file: its names in Kafka, and what it refuses for the sake of passwords."""

import pytest

from headrace.configuration.bridge import BridgeFile, Interconnect, Kafka, Sharing, Stream
from headrace.configuration.secret import Secret

SECRET = Secret("env:HEADRACE_TEST_PASSWORD")


def a_file(path="/etc/headrace/bridge.toml", prefix="headrace", **sharing):
    return BridgeFile(
        path=path,
        kafka=Kafka(bootstrap="kafka:9092", prefix=prefix),
        interconnect=Interconnect(listen="127.0.0.1:0"),
        sharing=Sharing(**sharing),
        streams={"bank": Stream(sources={"jakarta/bank": [0]})},
    )


def test_group_and_instance_are_named_by_prefix_host_and_file_unless_the_file_names_them():
    assert a_file().group == "headrace.bridges"
    assert a_file(prefix="staging").group == "staging.bridges"
    assert a_file(group="mine", prefix="staging").group == "mine"
    assert a_file().instance == a_file().instance != a_file(path="/etc/headrace/other.toml").instance
    assert a_file(instance="bridge-1").instance == "bridge-1"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("amqp://router.example:5672", "go with amqps:// addresses"),
        (["amqps://router.example", "amqp://router.example"], "go with amqps:// addresses"),
        ("amqps://bridge:secret@router.example", "holds a user or a password"),
    ],
)
def test_a_password_is_neither_sent_without_tls_nor_taken_from_a_url_e15(url, says):
    with pytest.raises(ValueError, match=says):
        Interconnect(url=url, user="bridge", password=SECRET)


@pytest.mark.parametrize("url", ["amqps://router.example:5671", "amqp://127.0.0.1:5672"])
def test_a_password_goes_over_tls_or_stays_on_this_machine_e15(url):
    assert Interconnect(url=url, user="bridge", password=SECRET).urls == [url]
