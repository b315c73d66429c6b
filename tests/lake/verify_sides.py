"""The two sides that verify compares, as tests make them: a database's address, and frames in the place of silver."""

from typing import ClassVar

from psycopg2.extensions import parse_dsn

from headrace.configuration.databases import PostgresqlConnection

SOURCE = "jakarta/bank"


class Frames:
    """Silver tables that a test made by itself."""

    policy: ClassVar = {}

    def __init__(self, **frames) -> None:
        self._frames = {name.replace("__", "."): frame for name, frame in frames.items()}

    def names(self, source):
        return set(self._frames)

    def dropped(self):
        return set()

    def frame(self, source, name):
        return self._frames.get(name)

    def treated(self, source, name):
        return self.policy

    def problem(self, source, name):
        return "its key was changed" if name == "public.stopped" else None

    def copying(self, source, name):
        return f"its copy from {source} is not complete" if name == "public.copied" else None


def address(dsn, **changes) -> PostgresqlConnection:
    given = parse_dsn(dsn)
    known = {"host": given["host"], "port": int(given["port"]), "database": given["dbname"], "user": given["user"]}
    return PostgresqlConnection(**(known | changes))


def rows(spark, columns, *values):
    """Return a frame of rows given as SQL; no Python process has to start for them."""
    return spark.sql(f"SELECT * FROM VALUES {', '.join(values)} AS t({columns})")
