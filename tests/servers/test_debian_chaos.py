"""Everything is struck at a source of MySQL 9.7 and of MariaDB 11.8, its full disk, a restored server and DDL among it."""

import pytest

from tests.end_to_end.chaos import Chaos, run
from tests.servers.debian import Mariadb118, Mysql97
from tests.servers.fix_mariadb import MariadbDatabase
from tests.servers.fix_stack import served
from tests.servers.volume import small_volume


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", [Mysql97, Mariadb118])
def test_what_kafka_has_makes_the_tables_of_a_debian_server(private_kafka, maria_edges, tmp_path, seed, kind):
    with small_volume(tmp_path, 64) as disk:
        for server in served(kind(tmp_path / "server")):
            with Chaos(tmp_path, private_kafka(), MariadbDatabase(server), maria_edges, disk) as chaos:
                run(chaos, seed)
