"""Asking the lake: names, published versions, formats, errors, the prompt and the commands."""

import csv
import io
import json

import pytest
from click.testing import CliRunner
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from headrace.errors import ConfigurationError, NeedsOperator
from spark_jobs import bronze, idle, prompt, sql
from spark_jobs.command import lake as command
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


def asked(desk, question, form="csv"):
    out = io.StringIO()
    sql.write(desk.ask(question), form, out)
    return out.getvalue()


def test_questions_are_answered_in_every_format(spark, bank):
    desk = sql.Desk(spark, bank)
    # a table outside of public has its schema in its name, and times beyond Python's are text as Spark has it
    assert asked(desk, "SELECT at, amount FROM silver.audit_log") == "at,amount\n+294247-01-10 04:00:54.775807,0.10\n"
    # columns may share a name, and text may hold commas
    question = "SELECT a.id, b.id, a.note FROM silver.accounts a JOIN silver.accounts b USING (note) ORDER BY 1;"
    assert list(csv.reader(io.StringIO(asked(desk, question)))) == [["id", "id", "note"], ["1", "1", "a,b"]]
    lines = asked(desk, "SELECT id, amount, note, at FROM silver.accounts ORDER BY id", "json").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"id": 1, "amount": 12.5, "note": "a,b", "at": "2026-01-31T09:15:00.250Z"},
        {"id": 2, "amount": None, "note": None, "at": None},
    ]
    assert "NULL" in asked(desk, "SELECT note FROM silver.accounts", "table")
    assert asked(desk, "SELECT count(*) AS n FROM bronze.bank WHERE op = 'c'") == "n\n3\n"
    assert asked(desk, "SELECT load FROM lake.published") == "load\n1\n"
    # Parquet keeps the types, and takes a new folder only
    sql.write_parquet(desk.ask("SELECT id, amount, at FROM silver.accounts"), f"{bank.root}/answer")
    answer = spark.read.parquet(f"{bank.root}/answer")
    assert answer.dtypes == [("id", "bigint"), ("amount", "decimal(10,2)"), ("at", "timestamp")]
    assert answer.count() == 2
    with pytest.raises(ConfigurationError, match="already exists"):
        sql.write_parquet(desk.ask("SELECT 1"), f"{bank.root}/answer")
    assert "accounts" in asked(desk, "SHOW TABLES IN silver")
    assert "amount" in desk.columns()


def test_question_that_makes_no_sense_is_one_sentence(spark, bank):
    desk = sql.Desk(spark, bank)
    for question, told in (
        ("SELECT nope FROM silver.accounts", "nope"),
        ("SELEC 1", "SELEC"),
        ("SELECT 1 FROM silver.nothing", "nothing"),
    ):
        with pytest.raises(ConfigurationError) as refused:
            desk.ask(question)
        assert told in refused.value.message
        assert "\n" not in refused.value.message
        assert "Project" not in refused.value.message


def test_prompt_answers_goes_on_after_an_error_and_leaves(spark, bank, capsys, tmp_path, monkeypatch):
    # given
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    # when
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text("\\d\nSELECT nope FROM silver.accounts;\nSELECT note\nFROM silver.accounts WHERE id = 1;\n\\q\n")
        prompt.run(sql.Desk(spark, bank), "csv")
    # then
    printed = capsys.readouterr().out
    assert "silver.audit_log" in printed
    assert "nope" in printed
    assert 'note\n"a,b"\n' in printed
    assert "silver.accounts WHERE id = 1" in (tmp_path / "headrace" / "sql_history").read_text()


def test_commands_report_what_they_did(spark, bank):
    run = CliRunner().invoke
    # then a load with nothing to do is known without Spark
    assert idle.report(bank, "bank") is not None
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
    assert "0 offsets to go" in run(command, ["check", "bank", "-c", bank.path], catch_exceptions=False).output
    answer = run(command, ["sql", "SELECT count(*) AS n FROM silver.accounts", "-c", bank.path, "--format", "csv"])
    assert answer.output == "n\n2\n"
    past = ["sql", "SELECT count(*) AS n FROM silver.accounts", "-c", bank.path, "--format", "csv", "--as-of"]
    assert run(command, [*past, "2026-02-01"]).output == "n\n2\n"
    assert "nothing had been captured" in run(command, [*past, "2026-01-01T00:00:00+07:00"]).exception.message
    assert "is no moment" in run(command, [*past, "yesterday"]).exception.message
    assert run(command, ["sql", "SELECT 1", "-c", bank.path, "--format", "parquet"]).exit_code == 2
    unknown = run(command, ["load", "shop", "--config", bank.path])
    assert isinstance(unknown.exception, ConfigurationError)
    assert "no stream 'shop'" in unknown.exception.message


def test_stream_of_which_nothing_is_published_says_so(spark, feed, lake_file):
    lake = lake_file(bank=feed().topic)
    result = CliRunner().invoke(command, ["positions", "bank", "-c", lake.path])
    assert isinstance(result.exception, NeedsOperator)
    assert "headrace lake load bank" in result.exception.hint
