"""Fixtures: a source of each engine."""

import pytest

from tests.contract.copied import Source


@pytest.fixture(params=["postgresql", "mariadb"])
def source(request, interconnect):
    """Return a source of one engine whose edge is initialised and does not run."""
    if request.param == "postgresql":
        database, edge = request.getfixturevalue("database"), request.getfixturevalue("edge")
        return Source(edge, database, "public")
    database = request.getfixturevalue("maria")
    return Source(request.getfixturevalue("maria_edge"), database, database.name)
