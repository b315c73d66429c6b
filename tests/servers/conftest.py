"""Fixtures: servers of Debian's packages, shared by the session, fresh databases in them, and edges that capture them."""

from collections.abc import Callable, Iterator

import pytest

from tests.amqp.fix_interconnect import Interconnect
from tests.servers.debian import Mariadb118, Mysql97
from tests.servers.fix_mariadb import QUICK, MariadbDatabase, MariadbEdge, with_table
from tests.servers.fix_stack import served


def initialised(edge: MariadbEdge) -> MariadbEdge:
    """Return an edge once it has a checkpoint."""
    edge.init()
    return edge


@pytest.fixture(scope="session")
def mysql97_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mysql97]:
    """Yield a running server, shared by the session: do not stop it. Its log leaves out a database `unlogged`."""
    settings = QUICK | {"binlog-ignore-db": "unlogged"}
    yield from served(Mysql97(tmp_path_factory.mktemp("mysql97"), settings=settings))


@pytest.fixture
def mysql97(mysql97_server: Mysql97) -> Iterator[MariadbDatabase]:
    """Yield a fresh database of that server, with a table `t`."""
    yield from with_table(mysql97_server)


@pytest.fixture
def mysql97_edge(
    maria_edges: Callable[..., MariadbEdge], mysql97: MariadbDatabase, interconnect: Interconnect
) -> MariadbEdge:
    """Return an initialised edge of that database, towards a far side that accepts."""
    return initialised(maria_edges(mysql97, interconnect.url))


@pytest.fixture(scope="session")
def mariadb118_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mariadb118]:
    """Yield a running server, shared by the session: do not stop it."""
    yield from served(Mariadb118(tmp_path_factory.mktemp("mariadb118"), settings=QUICK))


@pytest.fixture
def mariadb118(mariadb118_server: Mariadb118) -> Iterator[MariadbDatabase]:
    """Yield a fresh database of that server, with a table `t`."""
    yield from with_table(mariadb118_server)


@pytest.fixture(params=["mysql97", "mariadb118"])
def debian(request: pytest.FixtureRequest) -> MariadbDatabase:
    """Return a fresh database of each server, with a table `t`."""
    database: MariadbDatabase = request.getfixturevalue(request.param)
    return database


@pytest.fixture
def debian_edge(
    maria_edges: Callable[..., MariadbEdge], debian: MariadbDatabase, interconnect: Interconnect
) -> MariadbEdge:
    """Return an initialised edge of that database, towards a far side that accepts."""
    return initialised(maria_edges(debian, interconnect.url))
