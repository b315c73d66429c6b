"""An edge's file with a source that Debezium reads, and its engine, whose process a program of ours takes the place of."""

import pytest

from edge.debezium.engine import DebeziumEngine
from headrace.configuration.edge import EdgeFile
from headrace.configuration.load import load
from tests.unit.edge.debezium import java_double

FILE = """
[source]
name = "jakarta/bank"
[source.debezium]
connector = "postgres"
java = "{java}"
[source.debezium.properties]
"database.hostname" = "db"
"database.port" = 5433
"database.dbname" = "bank"
"slot.name" = "own"
{properties}
[source.debezium.secrets]
"database.password" = "env:PASSWORD"
[interconnect]
url = "amqp://127.0.0.1:1"
[state]
folder = "state"
{more}
"""


ROWS, NO_ROWS = (f'[snapshot]\nmode = "{mode}"' for mode in ("initial", "no_data"))


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.setenv("PASSWORD", "s3cret")

    def write(properties="", more="", java="java"):
        path = tmp_path / "edge.toml"
        path.write_text(FILE.format(properties=properties, more=more, java=java))
        return load(path, EdgeFile)

    return write


@pytest.fixture
def engine(read, tmp_path, monkeypatch):
    """Return what makes an engine whose process behaves so, and whose state folder is there."""
    monkeypatch.setattr("edge.debezium.engine.class_path", lambda _connector: [tmp_path / "a.jar"])
    (tmp_path / "state").mkdir()

    def make(program, more=ROWS, properties=""):
        config = read(properties, java=java_double.write(tmp_path, program), more=more)
        return DebeziumEngine(config, config.source.debezium)

    return make
