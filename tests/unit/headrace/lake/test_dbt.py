"""The sources of a dbt project, and what its connection shows. tests/readers has a project that dbt builds."""

import duckdb
import pytest
import yaml
from jinja2 import Template

from headrace.errors import ConfigurationError
from headrace.lake import dbt
from tests.unit.headrace.lake.test_lake import NOW, Table, accounts, field, lake, metadata, protocol

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


def test_names_are_what_dbt_reads_them_as(lake, tmp_path):
    """dbt takes texts of YAML for templates: a column could show the environment of who runs it, or end each run."""
    names = ["{{ 1 + 1 }}", "{% x %}{# y #}", 'a"b\\c', "x: y\n# z", "\x7f\x85\u2028\ufeff", "\U0001f600{é}"]
    table = Table(tmp_path, "silver/bank/public.{{ 2 }}")
    table.commit(protocol(), metadata(*(field(name, "long", f"c{n}") for n, name in enumerate(names))))
    (silver,) = yaml.safe_load(dbt.sources(lake((1, "public.{{ 2 }}", 0, 0)).at()))["sources"]
    (source,) = silver["tables"]
    assert Template(source["name"]).render() == "{{ 2 }}"
    assert Template(source["description"]).render() == "public.{{ 2 }} of stream bank"
    assert [Template(column["name"]).render() for column in source["columns"]] == names


def test_a_projects_own_file_is_left_as_it_is_whatever_its_name(lake, accounts, tmp_path):
    snapshot = lake((1, "public.accounts", 1, 0)).at()
    with duckdb.connect(tmp_path / 'my "own".duckdb') as connection:
        dbt.show(snapshot, connection)
        assert connection.execute("SELECT current_database()").fetchone() == ('my "own"',)
    with (
        duckdb.connect(tmp_path / "Published.duckdb") as connection,
        pytest.raises(ConfigurationError, match="own database is called published"),
    ):
        dbt.show(snapshot, connection)


@pytest.mark.parametrize(("as_of", "rows"), [("", 2), ("as_of: 2026-03-02", 3), ("as_of: 2026-03-01 12:30:00Z", 3)])
def test_a_run_sees_the_publication_of_a_time_as_yaml_has_it(as_of, rows, lake, accounts, monkeypatch):
    shown = lake((1, "public.accounts", 1, 0), (2, "public.accounts", 2, 13))
    monkeypatch.setattr(dbt, "open", lambda _: shown)
    plugin = dbt.Plugin()
    plugin.initialize(yaml.safe_load(f"lake: lake.toml\n{as_of}"))
    with duckdb.connect() as connection:
        plugin.configure_connection(connection)
        assert connection.execute("SELECT count(*) FROM published.silver.accounts").fetchone() == (rows,)
