"""Two `headrace bridge init` at the same time, as the init containers of several bridges: both end well."""

import pytest

from bridge.kafka.client import admin
from bridge.kafka.topics import make
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from tests.bridge.bridge_file import bridge_file


class Overtaken:
    """An administration client between whose look at the topics and what it makes another `init` makes the same."""

    def __init__(self, file, client):
        self._file, self._client, self._looked = file, client, False

    def __getattr__(self, name):
        return getattr(self._client, name)

    def list_topics(self, *words, **options):
        seen = self._client.list_topics(*words, **options)
        if not self._looked:
            self._looked = True
            make(self._client, self._file)
        return seen


@pytest.mark.parametrize("before", [{}, {"twice/one": [0]}], ids=["topic", "partitions"])
def test_what_another_init_made_meanwhile_is_taken_as_it_is(kafka, tmp_path, before):
    topic = f"init-twice-{len(before)}"
    if before:
        made = load(bridge_file(tmp_path, kafka.bootstrap, before, topic=topic), BridgeFile)
        make(admin(made.kafka), made)
    file = load(bridge_file(tmp_path, kafka.bootstrap, {"twice/one": [0], "twice/two": [2]}, topic=topic), BridgeFile)
    client = admin(file.kafka)
    make(Overtaken(file, client), file)
    assert len(client.list_topics(topic, timeout=60).topics[topic].partitions) == 3
