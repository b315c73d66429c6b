"""What a group has committed, where there is nothing to read it for."""

from bridge.kafka.entries import read_entries


def test_for_no_partitions_nothing_is_asked():
    """A topic that was made again with fewer partitions has none of a source; without any, the client would wait."""
    assert read_entries(None, "group", []) == {}
