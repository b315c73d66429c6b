"""Which engine a source has: the only place of the edge that names them."""

from edge.engine import Engine
from headrace.configuration.edge import EdgeFile


def engine_of(config: EdgeFile) -> Engine:
    """Return the engine that the file names; its driver is imported only then."""
    if config.source.postgresql is not None:
        from edge.postgres.engine import PostgresEngine

        return PostgresEngine(config, config.source.postgresql)
    if config.source.debezium is not None:
        from edge.debezium.engine import DebeziumEngine

        return DebeziumEngine(config, config.source.debezium)
    from edge.mysql.engine import MysqlEngine

    if config.source.mariadb is not None:
        return MysqlEngine(config, config.source.mariadb, "mariadb")
    assert config.source.mysql is not None
    return MysqlEngine(config, config.source.mysql, "mysql")
