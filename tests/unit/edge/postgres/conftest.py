"""Fixtures: every test of the decoder runs on each way of a change: exact, by functions made for the table, and in C."""

import pytest

from edge.postgres import rows_compiled, rows_in_c

#: Not on a machine without a C compiler.
_IN_C = ["c"] * (rows_in_c.module is not None)


@pytest.fixture(autouse=True, scope="package", params=["exact", "generated", *_IN_C])
def way(request):
    """Let changes take one way, from a table's first one on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_compiled, "WORTH_MAKING", 1_000_000 if request.param == "exact" else 0)
        if request.param != "c":
            patch.setattr(rows_in_c, "module", None)
        yield request.param
