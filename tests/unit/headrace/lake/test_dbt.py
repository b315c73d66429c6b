"""The sources of a dbt project, and what its connection shows. tests/readers has a project that dbt builds."""

import duckdb
import yaml

from headrace.lake import dbt
from tests.unit.headrace.lake.test_lake import NOW, accounts, lake

__all__ = ["accounts", "lake"]


def test_a_connection_shows_the_tables_in_a_database_of_their_own(lake, accounts):
    snapshot = lake((1, "public.accounts", 1, 0)).at()
    (silver,) = yaml.safe_load(dbt.sources(snapshot))["sources"]
    assert (silver["name"], silver["database"]) == ("silver", "published")
    (table,) = silver["tables"]
    assert (table["name"], table["description"]) == ("accounts", "public.accounts of stream bank")
    assert table["columns"][:2] == [
        {"name": "the id", "data_type": "BIGINT"},
        {"name": "b", "data_type": "DECIMAL(10,2)"},
    ]
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA own; USE own; SET TimeZone = 'UTC'")
        # A second time, as for a connection that is opened again.
        for _ in range(2):
            dbt.show(snapshot, connection)
        assert connection.execute("SELECT current_database() || '.' || current_schema()").fetchone() == ("memory.own",)
        rows = connection.execute('SELECT "the id" FROM published.silver.accounts ORDER BY ALL').fetchall()
        assert rows == [(row,) for row in sorted(snapshot.table("silver.accounts").to_arrow()["the id"].to_pylist())]
        assert connection.execute(table["config"]["loaded_at_query"]).fetchone() == (NOW,)
