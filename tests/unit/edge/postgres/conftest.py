"""Fixtures: every test of the decoder runs on both ways of a change, the exact one and that of functions made for the table."""

import pytest

from edge.postgres import rows_compiled


@pytest.fixture(autouse=True, scope="package", params=["exact", "generated"])
def way(request):
    """Let changes take one way, from a table's first one on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_compiled, "WORTH_MAKING", 0 if request.param == "generated" else 1_000_000)
        yield request.param
