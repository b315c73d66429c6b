"""Everything is struck at a source of each engine that `make test-long` has; MySQL 9.7 and MariaDB 11.8 are in tests/servers."""

import pytest

from infra.local.mariadb import Mariadb
from tests.end_to_end.chaos import Chaos, run
from tests.servers.fix_mariadb import MariadbDatabase
from tests.servers.fix_stack import Database, served
from tests.servers.volume import small_volume

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


def test_what_kafka_has_makes_the_tables_of_a_postgresql(private_postgres, private_kafka, edges, tmp_path, seed):
    with small_volume(tmp_path, 64) as disk:
        database = Database(private_postgres())
        with Chaos(tmp_path, private_kafka(), database, edges, disk) as chaos:
            run(chaos, seed)


def test_what_kafka_has_makes_the_tables_of_a_mariadb(private_kafka, maria_edges, tmp_path, seed):
    with small_volume(tmp_path, 64) as disk:
        for server in served(Mariadb(tmp_path / "mariadb")):
            with Chaos(tmp_path, private_kafka(), MariadbDatabase(server), maria_edges, disk) as chaos:
                run(chaos, seed)
