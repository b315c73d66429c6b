"""Many tables of which a load changes a few: it costs what these few cost, and the others are not opened (L25)."""

from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from spark_jobs.silver import table_task
from spark_jobs.state import published, schema_texts

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(1500)

J = "jakarta/bank"
TABLES = [f"public.t{i}" for i in range(5)]
NOTE = {"id": ("int8", None, None), "note": ("text", None, None)}


@contextmanager
def log_moved(lake, table):
    """Leave no log in a table's folder meanwhile: whatever opens the table finds none."""
    log = Path(table_task.path(lake.file, "bank", table), "_delta_log")
    log.rename(log.with_name("_moved"))
    try:
        yield
    finally:
        log.with_name("_moved").rename(log)


def forget(spark):
    """Know as little as a new process."""
    published._read.clear()
    schema_texts._known.clear()
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def test_l25_load_opens_no_table_that_did_not_change(logged_lake):
    # given tables of two sources
    lake = logged_lake()
    for feed in lake.feeds:
        for table in TABLES:
            feed.commit(feed.schema(NOTE, table=table), feed.insert(table, id=1, note="first"))
    assert lake.load().problems == {}
    one, _ = lake.feeds
    changed, others = TABLES[:2], TABLES[2:]
    read = []

    def fetched(spark, place, wanted, function=schema_texts._fetch):
        wanted = set(wanted)
        read.append(wanted - schema_texts._known[place].keys())
        function(spark, place, wanted)

    # when two of them change, and the others could not even be opened
    one.commit(*(one.update(table, id=1, note="second") for table in changed))
    lake.to_bronze()
    forget(lake.spark)
    with ExitStack() as stack:
        for table in others:
            stack.enter_context(log_moved(lake, table))
        stack.enter_context(patch.object(schema_texts, "_fetch", fetched))
        report = lake.load()
        forget(lake.spark)
        nothing = lake.load()
    # then these two are loaded, and a load that has nothing to do finds that out
    assert report.changes == dict.fromkeys(changed, 1)
    assert report.problems == nothing.problems == {}
    assert nothing.load is None
    assert lake.rows("note", table=changed[0]) == [(J, "second"), ("london/bank", "first")]
    assert lake.rows("note", table=others[0]) == [(J, "first"), ("london/bank", "first")]
    # and the schema records of both, which are the same at each source (L46), were read at once
    assert [len(one) for one in read if one] == [len(changed)]
