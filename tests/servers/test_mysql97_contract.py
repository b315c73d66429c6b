"""MySQL 9.7 has what consumers and operators may rely on whatever the engine is: the contract's tests, at a real server."""

import pytest

from tests.contract import test_snapshots, test_sources
from tests.contract.copied import Source


class TestSources:
    """Streams."""

    @pytest.fixture
    def source(self, mysql97_edge, mysql97):
        """Return the edge and its database."""
        return mysql97_edge, mysql97


class TestSnapshots:
    """Copies."""

    @pytest.fixture
    def source(self, mysql97_edge, mysql97):
        """Return the edge with its database."""
        return Source(mysql97_edge, mysql97, mysql97.name)


def add_tests(to, module):
    """Add the tests of a module to a class, which has their fixtures."""
    for name, function in vars(module).items():
        if name.startswith("test_"):
            setattr(to, name, staticmethod(function))


add_tests(TestSources, test_sources)
add_tests(TestSnapshots, test_snapshots)
