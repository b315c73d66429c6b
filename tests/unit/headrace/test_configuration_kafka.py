"""Kafka's own settings that a file passes through, and tokens: what is refused by name, and what reaches which client."""

import base64
import json
import time
from types import SimpleNamespace

import pytest

from headrace.configuration import bridge, lake
from headrace.configuration.secret import Secret, callback, expires_at
from headrace.errors import NotConnected


def connection(kind=bridge.Kafka, **settings):
    return kind(**({"bootstrap": "k:9092"} | settings))


@pytest.mark.parametrize(
    "name",
    [
        "enable.idempotence", "transactional.id", "isolation.level", "acks", "group.id", "enable.auto.commit",
        "auto.offset.reset", "bootstrap.servers", "max.in.flight", "ssl.endpoint.identification.algorithm",
        "session.timeout.ms", "proxy.password",
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [bridge.Kafka, lake.Kafka])
def test_what_guarantees_rest_on_is_refused_by_name(kind, name):
    with pytest.raises(ValueError, match=f"'{name}' cannot be set in \\[kafka.client\\]: "):
        connection(kind, client={name: "x"})


def test_what_is_only_one_clients_is_refused_there():
    with pytest.raises(ValueError, match="authority has it"):
        connection(client={"ssl.ca.pem": "x"})
    with pytest.raises(ValueError, match="Headrace sets it itself"):
        connection(client={"linger.ms": 1})
    with pytest.raises(ValueError, match="Spark reads bytes"):
        connection(lake.Kafka, client={"value.deserializer": "x"})
    with pytest.raises(ValueError, match=r"TLS is 1\.2 or newer"):
        connection(lake.Kafka, client={"ssl.enabled.protocols": "TLSv1"})
    with pytest.raises(ValueError, match=r"\[kafka.librdkafka_client\]: exactly-once"):
        connection(lake.Kafka, librdkafka_client={"acks": "1"})


def test_other_settings_reach_their_client():
    assert connection(client={"client.rack": "a", "broker.address.ttl": 5, "check.crcs": True}).librdkafka() == {
        "bootstrap.servers": "k:9092",
        "security.protocol": "PLAINTEXT",
        "client.rack": "a",
        "broker.address.ttl": "5",
        "check.crcs": "true",
    }
    both = connection(lake.Kafka, client={"client.rack": "a"}, librdkafka_client={"client.rack": "b"})
    assert (both.java()["client.rack"], both.librdkafka()["client.rack"]) == ("a", "b")


def jwt(**claims):
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}."


@pytest.mark.parametrize("token", ["opaque", "a.b.c", "..", jwt(sub="x"), jwt(exp="soon"), jwt(exp=None), "e30.W10."])
def test_a_token_that_does_not_say_when_it_ends_is_used_for_a_while(token, tmp_path):
    assert expires_at(token) is None
    (tmp_path / "token").write_text(token)
    text, ends = callback(Secret("file:token", tmp_path))("")
    assert (text, 290 < ends - time.time() <= 300) == (token, True)


def test_a_token_is_fetched_again_when_the_one_that_was_kept_has_ended(monkeypatch):
    secret, said = Secret("command:sh"), [jwt(exp=time.time() - 1), jwt(exp=2_000_000_000)]
    expired = []
    monkeypatch.setattr(
        secret, "command", SimpleNamespace(value=lambda: said[len(expired)], expire=lambda: expired.append(1))
    )
    assert callback(secret)("") == (said[1], 2_000_000_000)


def test_a_token_takes_the_place_of_user_and_password():
    known = connection(
        security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", token=Secret("command:echo x")
    ).librdkafka()
    assert known["sasl.mechanism"] == "OAUTHBEARER"
    assert known["oauth_cb"]("")[0] == "x"
    wrong = [
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"},
        {"security_protocol": "SSL", "sasl_mechanism": "OAUTHBEARER", "token": Secret("env:T")},
        {"security_protocol": "SASL_SSL", "token": Secret("env:T")},
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "token": Secret("env:T"), "user": "u"},
    ]
    for settings in wrong:
        with pytest.raises(ValueError, match="'token' goes with"):
            connection(**settings)


def test_a_token_that_cannot_be_had_is_said_before_a_client_is_made():
    secret = Secret("command:false")
    with pytest.raises(NotConnected, match="'false' of a secret ended with exit code 1"):
        connection(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", token=secret).librdkafka()


def test_the_lake_takes_a_token_only_with_a_class_that_fetches_one_for_spark():
    token = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "token": Secret("env:T")}
    with pytest.raises(ValueError, match=r"sasl.login.callback.handler.class"):
        connection(lake.Kafka, **token)
    java = connection(lake.Kafka, client={"sasl.login.callback.handler.class": "x.Y"}, **token).java()
    assert java["sasl.mechanism"] == "OAUTHBEARER"
    assert java["sasl.jaas.config"].endswith("OAuthBearerLoginModule required;")
    assert java["sasl.login.callback.handler.class"] == "x.Y"
