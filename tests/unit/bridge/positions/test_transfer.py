"""A file of exported positions: what is read, and what is refused before Kafka is asked."""

from types import SimpleNamespace

import pytest

from bridge.model.ports import Committed
from bridge.model.route import SourceRoute
from bridge.positions import transfer
from bridge.positions.transfer import export_positions, import_positions, read_export
from headrace.errors import ConfigurationError, NeedsOperator
from headrace.position import Position

GOOD = b'{"version": 1, "group": "g", "sources": [{"source": "a/b", "position": "%s", "committed_at": ""}]}'


@pytest.mark.parametrize(
    "data", [b"", b"no JSON", b"[]", b"{}", b'{"version": "1"}', b'{"version": 1}', GOOD % b"nowhere", b"\xff"]
)
def test_what_is_no_export_is_named(data):
    with pytest.raises(ConfigurationError, match=r"kept\.json is not what 'headrace bridge export' prints"):
        read_export(data, "kept.json")


def test_a_newer_export_is_refused_by_its_version():
    with pytest.raises(NeedsOperator, match="version 3 of the exported positions format"):
        read_export(b'{"version": 3, "more": true}', "kept.json")


@pytest.mark.parametrize(("order", "is_taken"), [((0, 2), False), ((2, 0), True), ((0, 1), True), ((), True)])
def test_partitions_in_another_order_than_at_the_export_are_refused_as_keys_would_move(monkeypatch, order, is_taken):
    position, committed = Position(7, 5, 0), []
    held = {"a/b": Committed(position, "", "b", {}, None, order)}
    monkeypatch.setattr(transfer, "positions_of", lambda *_: held)
    monkeypatch.setattr(transfer, "read_group", lambda *_: None)
    exported, _ = export_positions(SimpleNamespace(group="g"))
    assert exported.sources[0].partitions == list(order)
    # into another group, whose file has them in this order
    held["a/b"] = None
    monkeypatch.setattr(transfer, "routes", lambda _file: {"a/b": SourceRoute("a/b", "bank", (2, 0))})
    monkeypatch.setattr(transfer, "_check", lambda *_, **_named: None)
    monkeypatch.setattr(transfer, "commit_positions", lambda _file, _admin, positions, *_: committed.append(positions))
    if is_taken:
        import_positions(None, None, exported)
    else:
        with pytest.raises(NeedsOperator, match=r"a/b had its partitions in the order \[0, 2\] .* has \[2, 0\]"):
            import_positions(None, None, exported)
    assert committed == ([{"a/b": position}] if is_taken else [])
