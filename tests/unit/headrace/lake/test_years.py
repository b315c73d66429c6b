"""A look at a lake costs as much after years of loads as after some hours."""

from datetime import UTC, datetime

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from headrace.lake import Lake, delta_log
from tests.lake.opens import Opens
from tests.lake.years import Past, lengthen

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
YEARS = 3 * 365 * 24 * 60


def aged(root, newest, kept):
    """Return a lake whose tables have had a commit a minute: those of two days are kept."""
    positions = pa.map_(pa.string(), pa.string())
    common = {
        "stream": "bank",
        "load": 7,
        "finished_at": NOW,
        "history": None,
        "since": None,
        "dropped": None,
        "state": "current",
    }
    rows = [
        common | {"table": None, "version": None, "path": None, "positions": [("a/b", "1")]},
        common | {"table": "public.t", "version": newest, "path": "silver/bank/public.t", "positions": None},
    ]
    kinds = {
        "stream": pa.string(),
        "state": pa.string(),
        "load": pa.int64(),
        "finished_at": pa.timestamp("us", "UTC"),
        "history": pa.int64(),
    }
    kinds |= {"since": pa.int64(), "dropped": pa.timestamp("us", "UTC"), "table": pa.string(), "version": pa.int64()}
    kinds |= {"path": pa.string(), "positions": positions}
    tables = {
        "state": pa.Table.from_pylist(rows, schema=pa.schema(kinds)),
        "names": pa.table({"stream": ["bank"], "table": ["public.t"], "name": ["t"]}),
        "bronze/bank": pa.table({"value": ["v"]}),
        "silver/bank/public.t": pa.table({"id": [1], "name": ["a"]}),
    }
    past = Past(newest=newest, at=int(NOW.timestamp() * 1000), kept=kept, every=60.0)
    for name, content in tables.items():
        write_deltalake(root / name, content)
        DeltaTable(root / name).create_checkpoint()
        lengthen(root / name, past)
    return Lake(str(root))


def test_l41_a_look_without_spark_lists_no_log_and_reads_as_much_after_years_as_after_an_hour(tmp_path):
    """Each look listed the logs of what is published and of bronze: of a load that never ends 156 pages of S3 at each."""
    counts = {}
    for name, newest, kept in (("hour", 79, 60), ("years", YEARS + 29, 2 * 24 * 60)):
        lake = aged(tmp_path / name, newest, kept)
        with Opens(tmp_path / name) as opens:
            at = lake.at()
            assert at.table("silver.t").to_arrow().to_pylist() == [{"id": 1, "name": "a"}]
            assert at.table("bronze.bank").version == newest
        assert opens.listings == 0
        counts[name] = opens.files
    # Some that follow each other at once are counted as one.
    assert abs(counts["years"] - counts["hour"]) < 5


def test_a_version_of_before_the_last_checkpoint_is_found_by_the_names_of_the_log(tmp_path):
    lake = aged(tmp_path, YEARS + 29, 200)
    for version in (YEARS + 28, YEARS - 20, YEARS - 70):
        assert lake.at().table("silver.t").content.version == YEARS + 29
        assert len(delta_log.read(lake._storage, "silver/bank/public.t", version).files) == 1
