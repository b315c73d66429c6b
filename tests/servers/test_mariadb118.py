"""What is tested at MariaDB 11.4, at MariaDB 11.8: every type, DDL, XA, copies, faults, a failover, doctor and verify."""

import importlib

import pytest

from tests.servers.borrowed import add_tests
from tests.servers.debian import Mariadb118
from tests.servers.fix_mariadb import SECOND

pytest_plugins = ["tests.bridge.fix_bridge"]

_OF = "tests.integration.mysql.test_mariadb_"
_MODULES = [
    f"{_OF}{name}"
    for name in (
        "bad_input", "debezium_envelope", "debezium_forms", "doctor", "figures", "init", "memory", "pass", "records", "snapshot",
        "statements", "stream", "values", "xa",
    )
] + ["tests.integration.verify.test_verify_mariadb"]  # fmt: skip


@pytest.fixture(scope="session")
def mariadb(mariadb118_server):
    """Return a running server, shared by the session: do not stop it."""
    return mariadb118_server


@pytest.fixture(scope="session")
def _second_mariadb(tmp_path_factory):
    server = Mariadb118(tmp_path_factory.mktemp("mariadb118"), settings=SECOND)
    yield server
    server.delete()


for _module in map(importlib.import_module, _MODULES):
    _class = type("Test" + _module.__name__.rpartition("test_")[2].title().replace("_", ""), (), {})
    add_tests(_class, _module)
    globals()[_class.__name__] = _class
del _class
