"""`headrace verify` on a real database and real Delta tables, published as a load publishes them."""

import json
import shutil
import sys
from datetime import UTC, datetime, timedelta

import pytest
from psycopg2.extensions import parse_dsn

from headrace import command
from headrace.configuration.lake import Kafka, Lake, LakeFile, Stream
from headrace.configuration.load import load
from headrace.schema import Column, TableSchema
from spark_jobs.silver import table_task
from spark_jobs.state import publication
from spark_jobs.state.published import Published, Table

SOURCE, OTHER = "jakarta/bank", "london/bank"
POSITION = "692010c0/0000000001a00000/00000000"
COLUMNS = [
    Column(name="id", type_name="int4", position=1, optional=False),
    Column(name="balance", type_name="numeric", length=10, scale=2, position=2),
]
SCHEMA = json.dumps(
    {
        "source": {"schema": "public", "table": "accounts"},
        "tableChanges": [TableSchema(schema="public", table="accounts", key=["id"], columns=COLUMNS).change()],
    }
)
STREAMS = {name: Stream(sources=[SOURCE, OTHER]) for name in ("bank", "sales")}


@pytest.fixture
def bank(database):
    database.execute("CREATE TABLE accounts (id int PRIMARY KEY, balance numeric(10,2))")
    database.execute("INSERT INTO accounts SELECT n, n + 0.25 FROM generate_series(1, 100) n")
    return database


@pytest.fixture(scope="module")
def root(spark, tmp_path_factory):
    """Return a lake that two loads published: stream `bank` with the rows above, stream `sales` with one balance changed."""
    root = tmp_path_factory.mktemp("lake")
    publish(spark, root, "bank", "id + 0.25")
    publish(spark, root, "sales", "CASE id WHEN 17 THEN 17.24 ELSE id + 0.25 END")
    return root


def publish(spark, root, stream, balance):
    lake = LakeFile(
        path=str(root / "lake.toml"), lake=Lake(root=str(root)), kafka=Kafka(bootstrap="none:1"), streams=STREAMS
    )
    # The other region's rows are never this source's.
    rows = account_rows(spark, SOURCE, balance).union(account_rows(spark, OTHER, "0"))
    rows.coalesce(1).write.format("delta").save(table_task.path(lake, stream, "public.accounts"))
    table = Table(
        table="public.accounts", version=0, positions={SOURCE: POSITION}, schemas=dict.fromkeys((SOURCE, OTHER), SCHEMA)
    )
    done = Published(
        stream=stream, load=1, started_at=datetime.now(UTC), positions={SOURCE: POSITION}, tables={table.table: table}
    )
    publication.append(spark, lake, done)


def account_rows(spark, source, balance):
    return spark.range(1, 101).selectExpr(
        "cast(id AS int) AS id",
        f"cast({balance} AS decimal(10,2)) AS balance",
        f"'{source}' AS _source",
        f"'{POSITION}' AS _position",
        "timestamp'2026-01-31 09:15:00' AS _commit_time",
    )


@pytest.fixture
def file_for(bank, tmp_path):
    """Return a function that writes a lake's file for the test's database and returns its path."""
    given = parse_dsn(bank.dsn)

    def write(root, *, stream="bank", port=given["port"]):
        path = tmp_path / "lake.toml"
        path.write_text(f"""
[lake]
root = "{root}"
[kafka]
bootstrap = "127.0.0.1:1"
[streams.{stream}]
sources = ["{SOURCE}"]
[sources."{SOURCE}".postgresql]
host = "{given["host"]}"
port = {port}
database = "{given["dbname"]}"
user = "{given["user"]}"
""")
        return path

    return write


@pytest.fixture
def headrace(monkeypatch, capsys):
    """Return a function that runs the command in this process, whose Spark session it shares; gives exit code and output."""

    def run(*arguments) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["headrace", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            command.main()
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return run


def test_equal_tables_exit_with_0(file_for, root, headrace):
    code, said, _ = headrace("verify", "--at-rest", "--config", file_for(root))

    assert (code, said.splitlines()[-1]) == (0, "equal: 1 table of 1 source")


def test_a_difference_exits_with_1_and_is_located_for_people(file_for, root, headrace):
    code, said, _ = headrace(
        "verify", "--at-rest", "--config", file_for(root, stream="sales"), "sales", "--table", "accounts"
    )

    assert code == 1
    assert "  id=17: differs in balance" in said.splitlines()


def test_a_difference_exits_with_1_and_is_located_for_programs(file_for, root, headrace):
    code, said, _ = headrace(
        "verify", "--at-rest", "--config", file_for(root, stream="sales"), "--source", SOURCE, "--json"
    )

    assert code == 1
    (table,) = json.loads(said)["tables"]
    assert (table["table"], table["rows_source"], table["rows_lake"]) == ("public.accounts", 100, 100)
    assert table["differences"] == [{"what": "differs", "key": {"id": "17"}, "columns": ["balance"], "rows": 1}]


def test_each_verdict_is_recorded_for_those_who_look_later_and_what_cannot_be_is_no_failure(
    file_for, root, headrace, spark, tmp_path
):
    path = file_for(root, stream="sales")

    headrace("verify", "--at-rest", "--config", path)

    rows = spark.read.format("delta").load(str(root / "verified")).where("stream = 'sales'").orderBy("verified_at")
    last = rows.collect()[-1].asDict()
    verdict = {name: last[name] for name in ("source", "table", "verdict", "rows_source", "rows_lake")}
    assert verdict == {
        "source": SOURCE,
        "table": "public.accounts",
        "verdict": "not equal",
        "rows_source": 100,
        "rows_lake": 100,
    }
    assert abs(datetime.now(UTC) - last["verified_at"].astimezone(UTC)) < timedelta(minutes=10)

    # Given something else where the table is to be.
    lake = tmp_path / "other"
    shutil.copytree(root, lake, ignore=shutil.ignore_patterns("verified"))
    (lake / "verified").mkdir()
    (lake / "verified" / "notes.txt").write_text("mine")
    assert headrace("verify", "--at-rest", "--config", file_for(lake))[0] == 0
    assert [file.name for file in (lake / "verified").iterdir()] == ["notes.txt"]


def test_what_no_load_has_published_is_not_read(file_for, root, headrace, spark):
    path = file_for(root)
    spark.sql(f"DELETE FROM delta.`{table_task.path(load(path, LakeFile), 'bank', 'public.accounts')}` WHERE id = 1")

    code, _, _ = headrace("verify", "--at-rest", "--config", path)

    assert code == 0


def test_a_lake_that_was_never_loaded_misses_the_table(file_for, tmp_path, headrace, spark):
    code, said, _ = headrace("verify", "--at-rest", "--config", file_for(tmp_path / "empty"))

    assert code == 1
    assert "  the table is missing in the lake" in said.splitlines()


def test_a_table_that_nobody_has_is_a_wrong_command_line(file_for, tmp_path, headrace, spark):
    code, _, complaint = headrace("verify", "--at-rest", "--config", file_for(tmp_path / "empty"), "--table", "acounts")

    assert code == 2
    assert "no table 'acounts'" in complaint


def test_a_source_that_cannot_be_reached_exits_with_5_before_spark_is_asked(file_for, tmp_path, headrace):
    code, said, complaint = headrace("verify", "--at-rest", "--config", file_for(tmp_path / "empty", port=1))

    assert (code, said) == (5, "")
    assert f"source {SOURCE}: 127.0.0.1:1/" in complaint


def test_a_source_that_does_not_answer_keeps_no_verdict_of_another_one_back(file_for, root, headrace, spark):
    """V3: one silent edge ended the run for all, and what was found was neither printed nor recorded."""
    path = file_for(root)
    there = path.read_text().replace(f'sources = ["{SOURCE}"]', f'sources = ["{OTHER}", "{SOURCE}"]')
    silent = f'[sources."{OTHER}".postgresql]\nhost = "127.0.0.1"\nport = 1\ndatabase = "x"\nuser = "x"\n'
    path.write_text(there + silent)

    def recorded():
        return spark.read.format("delta").load(str(root / "verified")).where("stream = 'bank'").count()

    headrace("verify", "--at-rest", "--config", path)
    before = recorded()
    code, said, _ = headrace("verify", "--at-rest", "--config", path)
    assert code == 5
    assert "public.accounts" in said.splitlines()[1]
    assert f"{OTHER}: not compared: source {OTHER}: 127.0.0.1:1/x cannot be reached" in said
    assert said.splitlines()[-1] == "1 source not compared, or not all of it"
    assert recorded() == before + 1

    code, said, _ = headrace("verify", "--at-rest", "--config", path, "--json")
    result = json.loads(said)
    assert (result["equal"], [each["verdict"] for each in result["tables"]]) == (False, ["equal"])
    assert [each["source"] for each in result["failed"]] == [OTHER]
