"""What is looked at beside a binlog: how much of it stands after the checkpoint, and whether that is still there."""

from collections.abc import Callable

from edge import watch
from edge.figures import Figures
from edge.mysql.checkpoint import MysqlCheckpoint
from edge.mysql.place import place, split_name
from edge.mysql.server import check_log, check_settings
from edge.mysql.session import Database
from edge.outbox import Outbox
from headrace.configuration.edge import EdgeFile, Mysql


class Watch(watch.Watch[Database]):
    """Looks at settings and binlog."""

    def __init__(
        self,
        config: EdgeFile,
        connection: Mysql,
        checkpoint: Callable[[], MysqlCheckpoint],
        figures: Figures,
        outbox: Outbox,
    ) -> None:
        self._connection, self._checkpoint = connection, checkpoint
        super().__init__(config, figures, outbox)

    def connect(self) -> Database:
        """Return a new connection."""
        return Database(self._connection, self._config.source.name)

    def look(self, connection: Database) -> None:
        """Look once."""
        check_settings(connection, mariadb=self._config.source.mariadb is not None)
        checkpoint = self._checkpoint()
        log = check_log(connection, checkpoint)
        name, size = log.end
        retained = log.retained(checkpoint.confirmed)
        self._figures.saw_log(place(split_name(name)[1], size), retained=retained, safe=None)
        self.warn_of(retained)
