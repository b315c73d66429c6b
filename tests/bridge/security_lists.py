"""What docs/security.md says that each part must be allowed at Kafka, read from its commands."""

import re
from pathlib import Path

from headrace.configuration.sections import Topics
from tests.servers.fix_secure_kafka import Allow

_PAGE = Path(__file__).parents[2] / "docs" / "security.md"
_TENANTS = _PAGE.with_name("tenants.md")
_OPERATIONS = {"DescribeConfigs": "describe_configs"}
_KINDS = {"topic": "topic", "group": "group", "transactional-id": "transactional_id"}


def documented(user: str, page: Path = _PAGE, **names: str) -> list[Allow]:
    """Return what a page's commands allow a user, with TOPIC and STREAM replaced."""
    allowed = []
    for line in page.read_text(encoding="utf-8").splitlines():
        if f"--allow-principal User:{user} " not in line:
            continue
        (kind, name), *_ = re.findall(r"--(topic|group|transactional-id) (\S+)", line)
        for placeholder, value in names.items():
            name = name.replace(placeholder, value)
        prefixed = "--resource-pattern-type prefixed" in line
        operations = [_OPERATIONS.get(each, each.lower()) for each in re.findall(r"--operation (\w+)", line)]
        allowed += [Allow(_KINDS[kind], name, operation, prefixed) for operation in operations]
    assert allowed, f"{page.name} has no list for {user}"
    return allowed


def bridge_run(topic: str) -> list[Allow]:
    return documented("headrace-bridge", TOPIC=topic)


def bridge_init(topic: str) -> list[Allow]:
    return documented("headrace-init", TOPIC=topic)


def of_tables(allowed: list[Allow]) -> list[Allow]:
    """Return what a list allows for topics, for those of a stream's tables, as the page says it."""
    assert "`--topic TOPIC. --resource-pattern-type prefixed`" in _text()
    return [allow._replace(name=f"{allow.name}.", prefixed=True) for allow in allowed if allow.kind == "topic"]


def lake(topic: str, stream: str) -> list[Allow]:
    return documented("headrace-lake", TOPIC=topic, STREAM=stream)


def bridge_requests(topics: Topics) -> list[Allow]:
    """Return what the page allows a bridge that carries requests."""
    assert "`--operation Read --topic headrace.requests` and `--operation Write --topic headrace.answers`" in _text()
    return [Allow("topic", topics.requests, "read"), Allow("topic", topics.answers, "write")]


def caller(topics: Topics) -> list[Allow]:
    """Return what the page allows who asks edges."""
    assert "for the caller the reverse" in _text()
    return [Allow("topic", topics.requests, "write"), Allow("topic", topics.answers, "read")]


def bridge_delivery(topic: str) -> list[Allow]:
    """Return what the page allows a bridge of a delivery."""
    assert "`--operation Read --topic alerts`, `--operation Write --topic alerts.dead-letters`" in _text()
    return [Allow("topic", topic, "read"), Allow("topic", f"{topic}.dead-letters", "write")]


def _text() -> str:
    return _PAGE.read_text(encoding="utf-8")


def tenant(name: str) -> list[Allow]:
    """Return what docs/tenants.md allows the bridges of a tenant."""
    return documented("acme-bridge", _TENANTS, acme=name)
