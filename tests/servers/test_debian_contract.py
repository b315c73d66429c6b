"""Servers of Debian's packages have what consumers and operators may rely on whatever the engine is: the contract's tests."""

import pytest

from tests.contract import test_keyless_snapshots, test_snapshots, test_sources
from tests.contract.copied import Source
from tests.servers.borrowed import add_tests


class TestSources:
    """Streams."""

    @pytest.fixture
    def source(self, debian_edge, debian):
        """Return the edge and its database."""
        return debian_edge, debian


class TestSnapshots:
    """Copies of tables, with a key and without one."""

    @pytest.fixture
    def source(self, debian_edge, debian):
        """Return the edge with its database."""
        return Source(debian_edge, debian, debian.name)


add_tests(TestSources, test_sources)
add_tests(TestSnapshots, test_snapshots)
add_tests(TestSnapshots, test_keyless_snapshots)
