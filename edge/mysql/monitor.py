"""What is looked at next to a binlog: how much of it is after the checkpoint, and whether that is still there."""

from collections.abc import Iterable

from edge import watch
from edge.mysql.checkpoint import MysqlCheckpoint, place, split_name
from edge.mysql.checks import check_log, check_settings, retention_seconds
from edge.mysql.connection import Database
from edge.mysql.table_cache import described_columns
from edge.records.column_policy import PolicyTable


class Watch(watch.Watch[Database, MysqlCheckpoint]):
    """Looks at settings and binlog."""

    def look(self, connection: Database) -> None:
        """Look once."""
        check_settings(connection, mariadb=self._config.source.mariadb is not None)
        checkpoint = self._checkpoint()
        log = check_log(connection, checkpoint)
        name, size = log.end
        retained = log.retained(checkpoint.confirmed)
        self._figures.saw_log(place(split_name(name)[1], size), retained=retained, safe=None)
        self._figures.log_retention_seconds = retention_seconds(connection)
        self.warn_of(retained)
        self.look_at_policy(connection)

    def policy_tables(self, connection: Database) -> Iterable[PolicyTable]:
        """Return the tables of the chosen databases with their columns."""
        names = self._config.source.mariadb or self._config.source.mysql
        assert names is not None
        return described_columns(connection, names)
