"""Fixtures: every test of the decoder runs on each way of a change: exact, by functions made for the table, and in C."""

import pytest

from tests.edge.fix_edge import WAYS, decoding


@pytest.fixture(autouse=True, scope="package", params=WAYS)
def way(request):
    """Let changes take one way, from a table's first one on."""
    with decoding(request.param):
        yield request.param
