"""The Hive metastore of PySpark's jars knows the lake, after loads and by command; a Spark of its own reads what it knows."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from click.testing import CliRunner

from headrace.errors import NotConnected
from infra.local import jars
from spark_jobs import command, session
from spark_jobs.maintenance import drop
from spark_jobs.query import metastore, metastore_client
from spark_jobs.silver import table_task
from spark_jobs.state import publication, published
from tests.lake.logged import LoggedLake
from tests.servers.hive_metastore import HiveMetastore

pytestmark = pytest.mark.timeout(1200)
LOG = {"entry": ("text", None, None)}
#: Knows nothing of Headrace.
PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
uri, class_path, warehouse = sys.argv[1:]
spark = (SparkSession.builder.master("local[1]").enableHiveSupport().config("spark.driver.extraClassPath", class_path)
    .config("spark.hadoop.hive.metastore.uris", uri).config("spark.sql.warehouse.dir", warehouse)
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.sql.shuffle.partitions", "1").config("spark.ui.enabled", "false").getOrCreate())
rows = lambda query: [list(map(str, row)) for row in spark.sql(query).collect()]
print(json.dumps({
    "view": rows("SELECT id, name, balance FROM silver.accounts ORDER BY id"),
    "table": rows("SELECT id, name, balance FROM silver_tables.accounts ORDER BY id"),
    "columns": rows("DESCRIBE silver.accounts"),
    "names": rows("SHOW TABLES IN silver"),
}))
"""


@pytest.fixture(scope="module")
def hive(tmp_path_factory):
    server = HiveMetastore(tmp_path_factory.mktemp("hive"))
    server.start()
    yield server
    server.stop()


def after(lake):
    lake.load()
    return metastore.after_load(lake.spark, lake.file, "bank")


def test_a_metastore_shows_what_is_published_and_catches_up_after_it_was_down(spark, hive, tmp_path, monkeypatch):
    # given
    lake = LoggedLake(spark, tmp_path / "lake", f'[metastore]\nuri = "{hive.uri}"\n')
    feed = lake.feeds[0]
    feed.commit(feed.schema(), feed.schema(LOG, (), "public.log"), feed.insert("public.log", entry="a"))
    feed.commit(feed.insert(id=1, name="a", balance="1.50"))
    # when
    first, again = after(lake), after(lake)
    # then
    assert (sorted(first.renewed), first.load, again.renewed) == (["accounts", "log"], 1, [])
    # when it is down, no load fails, and what it lacks is made up for by the next one
    hive.stop()
    feed.commit(feed.update(id=1, name="b", balance="2.50"))
    lake.load()
    began = time.monotonic()
    down = metastore.after_load(spark, lake.file, "bank")
    assert "does not answer" in down.problem
    assert time.monotonic() - began < 30
    with pytest.raises(NotConnected):
        metastore.register(spark, lake.file, "bank")
    hive.start()
    feed.commit(feed.insert("public.log", entry="b"))
    assert sorted(after(lake).renewed) == ["accounts", "log"]
    with monkeypatch.context() as patch:
        patch.setattr(session, "session", lambda *_, **__: spark)
        feed.commit(feed.insert(id=2, name="c", balance="0"))
        lake.load()
        asked = ["register", "--json", "--config", str(lake.file.path)]
        dry = json.loads(CliRunner().invoke(command.lake, [*asked, "--dry-run"], catch_exceptions=False).output)
        whole = json.loads(CliRunner().invoke(command.lake, asked, catch_exceptions=False).output)
    assert (dry["renewed"], sorted(whole["renewed"])) == (["accounts"], ["accounts", "log"])

    # when a load is half done, and a table was dropped
    feed.commit(feed.update(id=1, name="half", balance="9"))
    with monkeypatch.context() as patch:
        patch.setattr(publication, "append", lambda *_, **__: (_ for _ in ()).throw(NotConnected("died")))
        with pytest.raises(NotConnected, match="died"):
            lake.load()
    drop.drop(spark, lake.file, "bank", "public.log")
    assert metastore.after_load(spark, lake.file, "bank").removed == ["log"]
    # then a Spark of somebody else sees the published rows in the view, and the newest ones in the table
    class_path = os.pathsep.join(map(str, jars.spark()))
    program = [sys.executable, "-W", "ignore", "-c", PROGRAM, hive.uri, class_path, str(tmp_path / "warehouse")]
    ended = subprocess.run(program, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr[-3000:]
    seen = json.loads(ended.stdout.splitlines()[-1])
    assert seen["view"] == [["1", "b", "2.50"], ["2", "c", "0.00"]]
    assert seen["table"] == [["1", "half", "9.00"], ["2", "c", "0.00"]]
    assert ["id", "bigint", "int8, key"] in seen["columns"]
    assert ["balance", "decimal(10,2)", "numeric(10,2)"] in seen["columns"]
    assert [name for _, name, _ in seen["names"]] == ["accounts"]
    with metastore_client.connected(spark, lake.file) as client:
        marks = dict(client._client.getTable("silver", "accounts").getParameters())
    state = published.latest(spark, lake.file, "bank")
    assert marks["headrace.key"] == "id"
    assert marks["headrace.version"] == str(state.tables["public.accounts"].version)
    assert marks["headrace.position.jakarta/bank"] <= state.positions["jakarta/bank"]


def test_registering_after_a_load_of_five_of_a_thousand_tables_takes_about_a_second(spark, hive, tmp_path):
    # given five tables, and a thousand in what is published and in the metastore: the others are one of them by other names
    lake = LoggedLake(spark, tmp_path / "lake", f'[metastore]\nuri = "{hive.uri}"\nprefix = "many_"\n')
    one, few = lake.feeds[0], [f"public.t{number}" for number in range(5)]
    one.commit(*(one.schema(table=name) for name in few))
    one.commit(*(one.insert(name, id=1, name="a", balance="1.50") for name in few))
    lake.load()
    state = published.latest(spark, lake.file, "bank")
    others = {f"public.o{n}": replace(state.tables[few[0]], table=f"public.o{n}") for n in range(995)}
    done = replace(state, load=state.load + 1, tables=state.tables | others)
    state = publication.append(spark, lake.file, done, before=state)
    path = table_task.path(lake.file, "bank", few[0])
    described = metastore._describe(spark, state, state.tables[few[0]], path)
    with metastore_client.connected(spark, lake.file) as client:
        databases = ["many_silver_tables", "many_silver"]
        for database in databases:
            client.database(database, make=True)
        for number in range(995):
            metastore._put(client, databases, f"o{number}", described)
        metastore._mark(client, databases, state)
    taken = []
    for round_ in range(5):
        one.commit(*(one.update(name, id=1, name=f"r{round_}", balance="1.50") for name in few))
        lake.load()
        # when
        registered = metastore.after_load(spark, lake.file, "bank")
        # then
        assert (registered.problem, sorted(registered.renewed)) == ("", ["t0", "t1", "t2", "t3", "t4"])
        taken.append(registered.seconds)
    print("registering five of 1,000 tables took", ", ".join(f"{seconds:.2f}" for seconds in sorted(taken)), "s")
    assert min(taken) < 5
