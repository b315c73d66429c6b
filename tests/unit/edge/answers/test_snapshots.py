"""Requests for snapshots: what they leave for the edge, what they show, and what they cannot do from afar."""

import msgspec
import pytest

from edge.answers.handlers import snapshot
from edge.snapshot.store import SnapshotStore
from headrace.configuration.edge import EdgeFile
from headrace.errors import ConfigurationError
from headrace.requests import new_request

SOURCE = "jakarta/bank"


@pytest.fixture
def config(tmp_path):
    return msgspec.convert(
        {
            "source": {"name": SOURCE, "postgresql": {"host": "x", "database": "x", "user": "x"}},
            "interconnect": {"url": "amqp://x"},
            "state": {"folder": str(tmp_path)},
        },
        EdgeFile,
    )


@pytest.fixture
def asked(config):
    return lambda **arguments: snapshot(config, new_request(SOURCE, "snapshot", "ann", 30, arguments))


def test_tables_are_left_for_the_edge_as_its_own_command_leaves_them(asked, config, tmp_path):
    assert asked(do="copy", tables=["public.orders", '"own"."orders.renamed"'], replace=True) == (
        0,
        {"lines": ["Asked for a snapshot of public.orders, own.orders.renamed. --status shows it."]},
    )
    asked(do="cancel", tables=["public.orders"])
    waiting = [request for _, request in SnapshotStore(tmp_path, SOURCE).waiting()]
    assert [(each.kind, each.tables, each.replace, each.where) for each in waiting] == [
        ("snapshot", ["public.orders", "own.orders.renamed"], True, None),
        ("cancel", ["public.orders"], False, None),
    ]
    code, data = asked(do="status", width=80)
    assert (code, data["plan"]["requests_waiting"]) == (0, 2)
    assert "2 requests wait for the edge to take them." in data["lines"]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"do": "copy", "where": "true); drop table orders"},
        {"do": "copy", "tables": ["orders"]},
        {"do": "copy", "tables": [""]},
        {"do": "copy", "tables": "public.orders"},
        {"do": "pause", "replace": True},
        {"do": "erase"},
        {"do": "status", "width": 10**9},
    ],
)
def test_what_is_not_understood_or_is_sql_is_refused_and_leaves_nothing(asked, tmp_path, arguments):
    with pytest.raises(ConfigurationError):
        asked(**arguments)
    assert SnapshotStore(tmp_path, SOURCE).waiting() == []
