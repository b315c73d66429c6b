"""Large tables are clustered by source and key, and a MERGE of keys far apart reads the files that may have them (L24)."""

import pytest
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from spark_jobs.maintenance import maintain, replay
from spark_jobs.silver import changes, merge, table_task, target_schema
from spark_jobs.state import log_files

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(1500)

J, TABLE = "jakarta/bank", "public.accounts"
ROWS = 4000


def columns(**kinds: str):
    return {name: (kind, None, None) for name, kind in kinds.items()}


@pytest.mark.long
def test_l24_merge_of_new_rows_and_a_few_old_ones_reads_few_files_of_a_clustered_table(logged_lake, monkeypatch):
    # given a table of one copy, in files of some kilobytes, each with keys from everywhere
    lake = logged_lake(f'[streams.bank.tables."{TABLE}"]\nhistory = true\n')
    first, other = lake.feeds
    for feed in (first, other):
        feed.commit(feed.schema(columns(id="int4", note="text")))
    first.commit(*(first.insert(id=i, note=f"note {i * 7919 % 10007}") for i in range(ROWS)))
    other.commit(other.insert(id=1, note="theirs"))
    lake.load()
    path = table_task.path(lake.file, "bank", TABLE)
    monkeypatch.setattr(merge, "LARGE", 0)
    monkeypatch.setattr(merge, "_LARGE", 0)
    monkeypatch.setattr(maintain, "_TARGET", 2 * 1024)

    def read(*keys):
        """Return the files that a MERGE of some keys reads, and all of them."""
        table = lake.spark.read.format("delta").load(path)
        target = target_schema.TargetSchema(
            table=TABLE, key=("id",), columns={"id": table.schema["id"].dataType}, canonical_key=True
        )
        changed = lake.spark.createDataFrame([(J, key) for key in keys], "_source string, id int")
        condition = changes.key_range_of(changed, target, apart=True).condition()
        return len(table.filter(condition).inputFiles()), len(table.inputFiles())

    def files():
        return set(lake.spark.read.format("delta").load(path).inputFiles())

    # when
    report = maintain.maintain(lake.spark, lake.file, "bank")
    # then
    assert f"silver/bank/{TABLE}" in report.compacted
    assert merge.columns(lake.spark, path) == ["_source", "id"]
    assert merge.columns(lake.spark, path.replace("/silver/", "/history/")) == ["_source", "id"]
    some, whole = read(*range(ROWS - 40, ROWS), 7)
    assert whole >= 6
    assert some <= whole // 2
    # when new rows and an old one come, and the table is maintained again
    first.commit(*(first.insert(id=i, note="new") for i in range(ROWS, ROWS + 40)), first.update(id=7, note="changed"))
    assert lake.load().problems == {}
    assert log_files.measure_unclustered(lake.spark, path) > 0
    before = files()
    monkeypatch.setattr(merge, "_GROWTH", 0)
    maintain.maintain(lake.spark, lake.file, "bank")
    # then the files that were clustered are as they were, and the new ones are clustered
    assert log_files.measure_unclustered(lake.spark, path) == 0
    assert len(files() & before) >= whole - 2
    # when the table is changed, and built again
    first.commit(first.update(id=8, note="last"))
    assert lake.load().problems == {}
    assert replay.of_silver(lake.spark, lake.file, "bank").problems == {}
    # then every row is as its source has it
    notes = {number: note for source, number, note in lake.rows("id", "note") if source == J}
    assert len(notes) == ROWS + 40
    assert [notes[number] for number in (7, 8, ROWS)] == ["changed", "last", "new"]
    assert lake.rows("id", "note")[-1][0] == "london/bank"
    other_key = lake.spark.read.format("delta").load(path).select(F.col("note").alias("code"), "_source")
    merge.release(other_key, path)
    assert merge.columns(lake.spark, path) == []
