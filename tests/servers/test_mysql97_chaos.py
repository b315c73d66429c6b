"""Everything is struck at a source of MySQL 9.7, its full disk, a restored server and DDL among it."""

import pytest

from tests.end_to_end.chaos import Chaos, run
from tests.servers.debian import Mysql97
from tests.servers.fix_mariadb import MariadbDatabase
from tests.servers.fix_stack import served
from tests.servers.volume import small_volume


@pytest.mark.timeout(1800)
def test_what_kafka_has_makes_the_tables_of_a_mysql_9_7(private_kafka, maria_edges, tmp_path, seed):
    with small_volume(tmp_path, 64) as disk:
        for server in served(Mysql97(tmp_path / "mysql")):
            with Chaos(tmp_path, private_kafka(), MariadbDatabase(server), maria_edges, disk) as chaos:
                run(chaos, seed)
