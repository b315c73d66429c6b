"""A table that stopped costs the loads after it nothing, and goes on where it stands (L11)."""

import json
from contextlib import closing
from unittest.mock import patch

import pytest
from click.testing import CliRunner

from headrace.errors import ConfigurationError, NeedsOperator
from spark_jobs import command, preflight
from spark_jobs.bronze import increment
from spark_jobs.query import snapshot
from spark_jobs.query.engine import SqlEngine
from spark_jobs.silver import table_load

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(900)

J = "jakarta/bank"
LOG = {"entry": ("text", None, None)}


def went_on(lake, *since):
    """Return the number of the last load, and the tables that went on with the load that brought them."""
    said = CliRunner().invoke(command.lake, ["changed", "bank", *since, "--config", str(lake.file.path)])
    result = json.loads(said.output)
    assert all(table["version"] is not None and J in table["positions"] for table in result["tables"].values())
    return result["load"], {name: table["load"] for name, table in result["tables"].items()}


@pytest.mark.long
def test_l11_a_stopped_table_is_read_again_from_where_it_stopped_and_only_when_something_of_it_came(spark, logged_lake):
    # given a table that stopped at an update, since it has neither a key nor the old row
    lake = logged_lake()
    source, _ = lake.feeds
    source.commit(source.schema(), source.schema(LOG, (), "public.log"), source.insert("public.log", entry="a"))
    for number in range(3):
        source.commit(source.insert(id=number, name="a", balance="1.00"))
    lake.load()
    source.commit(source.update("public.log", entry="b"))
    assert "public.log has no key" in lake.load().problems["public.log"]
    read, tried = [], []

    def rows(*given, really=increment.rows):
        read.append(really(*given))
        return read[-1]

    def apply(session, job, work, base, really=table_load.apply):
        tried.append(work.table)
        return really(session, job, work, base)

    def load():
        """Load; return which tables were tried, and how many rows of bronze were in what was read."""
        read.clear()
        tried.clear()
        with patch.object(increment, "rows", rows), patch.object(table_load, "apply", apply):
            assert "public.log" in lake.load().problems
        return sorted(tried), [frame.count() for frame in read]

    # when and then: with nothing new nothing is read
    assert load() == ([], [])
    # and of what is new, only what came
    source.commit(source.insert(id=3, name="a", balance="1.00"))
    assert load() == (["public.accounts"], [1])
    # and the other table's asset says where it is
    assert went_on(lake) == (3, {"public.accounts": 3})
    assert went_on(lake, "--since", "0") == (3, {"public.accounts": 3, "public.log": 1})
    # and once something of that table came, what came since it stopped
    source.commit(source.insert("public.log", entry="c"))
    assert load() == (["public.log"], [1, 3])
    # and what the lake's file says may help
    lake.set('[streams.bank.tables."public.log"]\non_incompatible = "rebuild"\n')
    assert load() == (["public.log"], [0, 3])
    assert load() == ([], [])
    # and Airflow's task behind the load ends with what an operator has to do
    asked = ["tables", "bank", "--stopped", "--config", str(lake.file.path)]
    result = CliRunner().invoke(command.lake, asked)
    assert (result.exit_code, "public.log has no key" in result.output) == (3, True)
    assert "public.accounts" not in result.output
    # and with a key it goes on where it stands
    source.commit(source.schema(LOG, ("entry",), "public.log"), source.insert("public.log", entry="d"))
    assert lake.load().problems == {}
    assert lake.rows("entry", table="public.log") == [(J, "a"), (J, "b"), (J, "c"), (J, "d")]
    assert lake.load().load is None
    assert CliRunner().invoke(command.lake, asked).exit_code == 0
    assert preflight.whole(lake.file, "bank")


@pytest.mark.long
def test_l36_a_stopped_table_stays_stopped_when_nothing_of_it_comes_but_the_marks_of_a_copy(spark, logged_lake):
    # given a table that stopped, and changes of it since
    lake = logged_lake()
    source, _ = lake.feeds
    marked = (LOG, (), "public.log")
    source.commit(source.schema(*marked), source.insert("public.log", entry="a"))
    lake.load()
    source.commit(source.update("public.log", entry="b"), source.insert("public.log", entry="c"))
    assert "public.log" in lake.load().problems
    # when the stream goes on without it, and then a copy of it begins, and is cancelled
    source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    assert "public.log" in lake.load().problems
    for mark in (source.copy_begins, source.copy_ends):
        source.commit(mark(*marked))
        # then it stays stopped
        assert "public.log" in lake.load().problems
        assert lake.rows("entry", table="public.log") == [(J, "a")]
    # and goes on with all that came since it stopped, once it can
    source.commit(source.schema(LOG, ("entry",), "public.log"), source.insert("public.log", entry="d"))
    assert lake.load().problems == {}
    assert lake.rows("entry", table="public.log") == [(J, "a"), (J, "b"), (J, "c"), (J, "d")]


def test_v9_a_stopped_table_fails_the_queries_that_read_its_newest_rows_and_no_others(spark, logged_lake, monkeypatch):
    """V9: SHOW and USE made the newest rows of every table, so one stopped table failed them, and what had its name in a text."""
    # given a table that no load can bring up, beside another one
    lake = logged_lake()
    source, _ = lake.feeds
    source.commit(source.schema(), source.schema(LOG, (), "public.log"), source.insert("public.log", entry="a"))
    source.commit(source.insert(id=1, name="log", balance="1.00"))
    lake.load()
    source.commit(source.update("public.log", entry="b"))
    assert list(lake.load().problems) == ["public.log"]
    monkeypatch.setattr(increment, "beyond", lambda *_: {})
    # (other lakes of this process have theirs beside them)
    others = spark.sql("SHOW TABLES IN history").collect() if spark.catalog.databaseExists("history") else []
    overlaid = []

    def sql(*given, really=snapshot.sql):
        overlaid.append(given[3])
        return really(*given)

    monkeypatch.setattr(snapshot, "sql", sql)
    with closing(SqlEngine(spark.newSession(), lake.file)) as sql_engine:

        def ask(query):
            overlaid.clear()
            return [tuple(row) for row in sql_engine.ask(query).collect()], list(overlaid)

        # then what lists or selects a database opens no table
        listed, opened = ask("SHOW TABLES IN silver")
        assert {("silver", "accounts", False), ("silver", "log", False)} <= set(listed)
        assert opened == []
        listed, opened = ask("show tables in silver_live like 'lo*'")
        assert (("silver_live", "log", False) in listed, opened) == (True, [])
        assert ask("USE silver_live") == ([], [])
        # and other tables are shown, whatever their rows or the query's texts are called
        assert ask("SELECT name FROM accounts") == ([("log",)], ["public.accounts"])
        assert ask("SELECT name FROM silver_live.accounts WHERE name = 'log'")[0] == [("log",)]
        assert ask("SELECT name AS catalogue FROM silver_live.accounts") == ([("log",)], [])
        assert ask("SELECT entry FROM silver.log")[0] == [("a",)]
        # and the stopped one reports why, also where it was listed
        with pytest.raises(NeedsOperator, match=r"public\.log has no key"):
            sql_engine.ask("SELECT * FROM silver_live.log")
        with pytest.raises(ConfigurationError, match="nothing"):
            sql_engine.ask("SELECT * FROM silver_live.nothing, silver_live.accounts")
        # and a table that is listed alone is never shown as another one
        assert ask("SHOW TABLES IN history")[0] == [tuple(row) for row in others]
