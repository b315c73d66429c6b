"""Asking the lake: names, published versions, formats, errors, the prompt and the commands."""

import csv
import io
import json
from decimal import Decimal

import pytest
from click.testing import CliRunner
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from headrace.errors import ConfigurationError, NeedsOperator, ReplicationError
from spark_jobs import preflight
from spark_jobs.bronze import load as bronze
from spark_jobs.command import lake as command
from spark_jobs.query import engine, repl, results
from spark_jobs.silver import load as silver

COLUMNS = {
    "id": ("int8", None, None),
    "at": ("timestamptz", None, None),
    "amount": ("numeric", 10, 2),
    "note": ("text", None, None),
}


@pytest.fixture(scope="module")
def bank(spark, feed, lake_in, tmp_path_factory):
    """Return a lake with one stream of two tables, which nobody changes."""
    source = feed()
    lake = lake_in(tmp_path_factory.mktemp("lake"))(bank=source.topic)
    source.commit(
        source.schema(COLUMNS),
        source.insert(id=1, at="2026-01-31T09:15:00.25Z", amount="12.50", note="a,b"),
        source.insert(id=2, at=None, amount=None, note=None),
        source.schema(COLUMNS, table="audit.log"),
        source.insert("audit.log", id=7, at="infinity", amount="0.10", note="x"),
    )
    bronze.load(spark, lake, "bank")
    silver.load(spark, lake, "bank")
    return lake


def asked(sql_engine, question, form="csv"):
    out = io.StringIO()
    results.write(sql_engine.ask(question), form, out)
    return out.getvalue()


def test_questions_are_answered_in_every_format(spark, bank):
    sql_engine = engine.SqlEngine(spark, bank)
    # a table outside of public has its schema in its name, and times beyond Python's are text as Spark has it
    assert (
        asked(sql_engine, "SELECT at, amount FROM silver.audit_log")
        == "at,amount\n+294247-01-10 04:00:54.775807,0.10\n"
    )
    # columns may share a name, and text may hold commas
    question = "SELECT a.id, b.id, a.note FROM silver.accounts a JOIN silver.accounts b USING (note) ORDER BY 1;"
    assert list(csv.reader(io.StringIO(asked(sql_engine, question)))) == [["id", "id", "note"], ["1", "1", "a,b"]]
    lines = asked(sql_engine, "SELECT id, amount, note, at FROM silver.accounts ORDER BY id", "json").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"id": 1, "amount": 12.5, "note": "a,b", "at": "2026-01-31T09:15:00.250000Z"},
        {"id": 2, "amount": None, "note": None, "at": None},
    ]
    assert "NULL" in asked(sql_engine, "SELECT note FROM silver.accounts", "table")
    assert asked(sql_engine, "SELECT count(*) AS n FROM bronze.bank WHERE op = 'c'") == "n\n3\n"
    assert asked(sql_engine, "SELECT load FROM lake.published") == "load\n1\n"
    # Parquet keeps the types, and takes a new folder only
    results.write_parquet(sql_engine.ask("SELECT id, amount, at FROM silver.accounts"), f"{bank.root}/answer", bank)
    answer = spark.read.parquet(f"{bank.root}/answer")
    assert answer.dtypes == [("id", "bigint"), ("amount", "decimal(10,2)"), ("at", "timestamp")]
    assert answer.count() == 2
    with pytest.raises(ConfigurationError, match="already exists"):
        results.write_parquet(sql_engine.ask("SELECT 1"), f"{bank.root}/answer", bank)
    assert "accounts" in asked(sql_engine, "SHOW TABLES IN silver")
    # columns of tables that are not named are not looked for: they would all be opened
    assert sql_engine.columns("SELECT count(*) FROM") == []
    assert "amount" in sql_engine.columns("SELECT a FROM silver.Accounts")


def test_json_and_csv_keep_every_value(spark, bank):
    """L9: decimals went through floats, columns of one name became one, times lost their microseconds, '' looked like NULL."""
    sql_engine = engine.SqlEngine(spark.newSession(), bank)
    exact = "12345678901234567890.123456789012345678"
    values = (
        f"cast('{exact}' AS decimal(38,18)) AS d, 9223372036854775807 AS b, timestamp'2026-01-31 09:15:00.123456' AS t"
    )
    query = f"SELECT {values}, 1 AS id, 2 AS id, named_struct('n', cast(NULL AS int)) AS s, X'00ff' AS raw, double('NaN') AS f"
    line = asked(sql_engine, query, "json")
    assert json.loads(line, parse_float=Decimal) == {
        "d": Decimal(exact),
        "b": 9223372036854775807,
        "t": "2026-01-31T09:15:00.123456Z",
        "id": 1,
        "id_2": 2,
        "s": {"n": None},
        "raw": "AP8=",
        "f": "NaN",
    }
    assert asked(sql_engine, "SELECT '' AS a, NULL AS b, X'00ff' AS c") == 'a,b,c\n"",,AP8=\n'
    # timestamps of any year, and no column at all
    years = "SELECT timestamp_ntz'-0043-03-15 12:00:00' AS y, at FROM silver.audit_log"
    assert json.loads(asked(sql_engine, years, "json")) == {
        "y": "-0043-03-15T12:00:00.000000",
        "at": "+294247-01-10T04:00:54.775807Z",
    }
    assert asked(sql_engine, "USE silver", "json") == ""


def test_a_long_answer_is_written_as_it_comes_and_is_not_cut(spark, bank):
    """L20, L31: an answer was collected as a whole, and cut at 80 columns where there is no terminal."""
    sql_engine = engine.SqlEngine(spark, bank)
    shown = asked(sql_engine, "SELECT id, repeat('x', 200) AS wide FROM range(2500)", "table")
    assert shown.count("x" * 200) == 2500
    assert shown.count("wide") == 3
    # of four partitions the first is written before the last one, which fails, is asked
    out = io.StringIO()
    with pytest.raises(ReplicationError):
        results.write(
            sql_engine.ask("SELECT if(id < 900, id, raise_error('late')) AS id FROM range(0, 1000, 1, 4)"), "csv", out
        )
    assert len(out.getvalue().splitlines()) > 250


WRITING = """
DELETE FROM silver.accounts
DROP TABLE silver.accounts
INSERT INTO silver.accounts SELECT 1
INSERT OVERWRITE DIRECTORY '/tmp/x' USING parquet SELECT 1
WITH a AS (SELECT 1) INSERT INTO silver.accounts SELECT * FROM a
FROM silver.accounts INSERT OVERWRITE TABLE a SELECT id INSERT INTO b SELECT id
CREATE TABLE bronze.mine AS SELECT 1
CREATE OR REPLACE TABLE mine SHALLOW CLONE delta.`{path}`
CREATE VIEW silver.mine AS SELECT 1
MERGE INTO silver.accounts t USING bronze.bank s ON false WHEN MATCHED THEN DELETE
UPDATE silver.accounts SET id = 1
TRUNCATE TABLE silver.accounts
ALTER TABLE silver.accounts ADD COLUMN a int
VACUUM delta.`{path}`
OPTIMIZE delta.`{path}`
RESTORE TABLE delta.`{path}` TO VERSION AS OF 0
REORG TABLE delta.`{path}` APPLY (PURGE)
CONVERT TO DELTA parquet.`{path}`
EXECUTE IMMEDIATE 'DELETE FROM silver.accounts'
BEGIN DELETE FROM silver.accounts; END
"""


def test_statements_that_write_are_refused(spark, bank):
    """L20: the prompt took DELETE FROM."""
    sql_engine = engine.SqlEngine(spark, bank)
    for statement in WRITING.format(path=f"{bank.root}/state").strip().splitlines():
        with pytest.raises(ConfigurationError) as refused:
            sql_engine.ask(statement)
        assert "is refused since it is not a query" in refused.value.message, statement
        assert "loads alone" in refused.value.hint


def test_statements_that_only_show_are_answered(spark, bank):
    sql_engine = engine.SqlEngine(spark.newSession(), bank)
    for statement in (
        *(
            "SHOW DATABASES",
            "DESCRIBE silver.accounts",
            "EXPLAIN SELECT 1",
            "SHOW COLUMNS IN silver.accounts",
            "VALUES (1)",
        ),
        *(
            "SET spark.sql.session.timeZone = UTC",
            "CREATE TEMPORARY VIEW one AS SELECT id FROM silver.accounts",
            "SELECT * FROM one",
        ),
        *(f"DESCRIBE HISTORY delta.`{bank.root}/state`", "USE silver", "SELECT count(*) FROM accounts"),
    ):
        asked(sql_engine, statement)


def test_question_that_makes_no_sense_is_one_sentence(spark, bank):
    sql_engine = engine.SqlEngine(spark, bank)
    for question, reported in (
        ("SELECT nope FROM silver.accounts", "nope"),
        ("SELEC 1", "SELEC"),
        ("SELECT 1 FROM silver.nothing", "nothing"),
    ):
        with pytest.raises(ConfigurationError) as refused:
            sql_engine.ask(question)
        assert reported in refused.value.message
        assert "\n" not in refused.value.message
        assert "Project" not in refused.value.message


def test_prompt_answers_goes_on_after_an_error_and_leaves(spark, bank, capsys, tmp_path, monkeypatch):
    # given
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    # when
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text("\\d\nSELECT nope FROM silver.accounts;\nSELECT note\nFROM silver.accounts WHERE id = 1;\n\\q\n")
        repl.run(engine.SqlEngine(spark, bank), "csv")
    # then
    printed = capsys.readouterr().out
    assert "silver.audit_log" in printed
    assert "nope" in printed
    assert 'note\n"a,b"\n' in printed
    assert "silver.accounts WHERE id = 1" in (tmp_path / "headrace" / "sql_history").read_text()


def test_commands_report_what_they_did(spark, bank):
    run = CliRunner().invoke
    # then a load with nothing to do is known without Spark
    assert preflight.report(bank, "bank") is not None
    loaded = run(command, ["load", "bank", "--config", bank.path, "--json"], catch_exceptions=False)
    assert json.loads(loaded.output)["bronze"]["records"] == 0
    assert (
        "nothing new"
        in run(command, ["load", "bank", "--config", bank.path, "--only", "silver"], catch_exceptions=False).output
    )
    shown = json.loads(run(command, ["positions", "bank", "-c", bank.path, "--json"], catch_exceptions=False).output)
    assert set(shown["positions"]) == {"jakarta/bank"}
    assert shown["load"] == 1
    assert shown["offsets"] == {"0": 6}
    assert "jakarta/bank" in run(command, ["positions", "bank", "-c", bank.path], catch_exceptions=False).output
    checked = run(command, ["check", "bank", "-c", bank.path], catch_exceptions=False).output
    assert "0 offsets to go" in checked
    assert "Kafka removes no record because of its age" in checked
    answer = run(command, ["sql", "SELECT count(*) AS n FROM silver.accounts", "-c", bank.path, "--format", "csv"])
    assert answer.output == "n\n2\n"
    past = ["sql", "SELECT count(*) AS n FROM silver.accounts", "-c", bank.path, "--format", "csv", "--as-of"]
    assert run(command, [*past, "2026-02-01"]).output == "n\n2\n"
    assert "nothing had been captured" in run(command, [*past, "2026-01-01T00:00:00+07:00"]).exception.message
    assert "is no moment" in run(command, [*past, "yesterday"]).exception.message
    assert run(command, ["sql", "SELECT 1", "-c", bank.path, "--format", "parquet"]).exit_code == 2
    # a script on standard input is run, not echoed; the first error ends it (L20)
    script = "-- two; statements\nSELECT 1 AS one; SELECT ';' AS two;\nSELECT nope; SELECT 3 AS three"
    done = run(command, ["sql", "-c", bank.path, "--format", "csv"], input=script)
    assert done.output == "one\n1\ntwo\n;\n"
    assert "nope" in done.exception.message
    listed = json.loads(run(command, ["tables", "-c", bank.path, "--rows", "--json"], catch_exceptions=False).output)
    assert [(each["table"], each["name"], each["state"], each["rows"]) for each in listed] == [
        ("audit.log", "silver.audit_log", "published", 1),
        ("public.accounts", "silver.accounts", "published", 2),
    ]
    assert set(listed[0]["positions"]) == {"jakarta/bank"}
    assert 0 <= listed[0]["age_seconds"] < 3600
    shown = run(command, ["tables", "bank", "-c", bank.path], catch_exceptions=False).output
    assert "silver.audit_log" in shown
    unknown = run(command, ["load", "shop", "--config", bank.path])
    assert isinstance(unknown.exception, ConfigurationError)
    assert "no stream 'shop'" in unknown.exception.message


def test_stream_of_which_nothing_is_published_says_so(spark, feed, lake_file):
    lake = lake_file(bank=feed().topic)
    result = CliRunner().invoke(command, ["positions", "bank", "-c", lake.path])
    assert isinstance(result.exception, NeedsOperator)
    assert "headrace lake load bank" in result.exception.hint
