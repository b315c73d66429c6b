"""A file of exported positions: what is read, and what is refused before Kafka is asked."""

import pytest

from bridge.positions.transfer import read_export
from headrace.errors import ConfigurationError, NeedsOperator

GOOD = b'{"version": 1, "group": "g", "sources": [{"source": "a/b", "position": "%s", "committed_at": ""}]}'
POSITION = b"0000000065f0c000/0000000000000001/00000000"


@pytest.mark.parametrize(
    "data", [b"", b"no JSON", b"[]", b"{}", b'{"version": "1"}', b'{"version": 1}', GOOD % b"nowhere", b"\xff"]
)
def test_what_is_no_export_is_named(data):
    with pytest.raises(ConfigurationError, match=r"kept\.json is not what 'headrace bridge export' prints"):
        read_export(data, "kept.json")


def test_a_newer_export_is_refused_by_its_version():
    with pytest.raises(NeedsOperator, match="version 3 of the exported positions format"):
        read_export(b'{"version": 3, "more": true}', "kept.json")
