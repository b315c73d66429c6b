"""The page of a table: read from Delta tables as loads leave them, whatever names they have, in a few reads."""

import json
import os
import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from headrace.configuration.lake import Stream, TableOptions
from headrace.console import lineage, plots, table_detail
from headrace.console.lake import Lake
from headrace.console.lineage import DbtModels
from headrace.console.table_detail import TableDetails
from headrace.lake.own_tables import OwnTables
from headrace.schema import Column, TableSchema
from tests.unit.headrace.console.test_pages import Served, answer, whole_lake

NOW = datetime.now(UTC)
HOSTILE = "public.\"><script>alert(1)</script>/../'; DROP\n&?#%41 ✓漢字"
TEXTS = pa.map_(pa.string(), pa.string())
QUALITY = pa.struct(
    [(name, pa.string()) for name in ("expectation", "expression", "problem")]
    + [(name, pa.int64()) for name in ("total", "total_failing")]
)
STATE = pa.schema(
    [("stream", pa.string()), ("table", pa.string()), ("path", pa.string()), ("load", pa.int64()), ("positions", TEXTS),
     ("reason", pa.string()), ("version", pa.int64()), ("history", pa.int64()), ("keyed", pa.bool_()), ("warnings", TEXTS),
     ("copying", TEXTS), ("changes", pa.int64()), ("schemas", TEXTS), ("quality", pa.list_(QUALITY)),
     ("finished_at", pa.timestamp("us", tz="UTC"))]
)  # fmt: skip
SCHEMA = TableSchema(
    schema="public",
    table="accounts",
    key=["id"],
    columns=[
        Column(name="id", type_name="int4", position=1, optional=False),
        Column(name="amount", type_name="numeric", length=10, scale=2, position=2),
        Column(name="<b>secret</b>", type_name="text", position=3, policy="hash"),
    ],
)


def make_lake(root, name=HOSTILE, **more):
    """Write a lake of one table that three loads published, the second of which did not change it."""
    amounts = pa.table({"id": pa.array([1]), "amount": pa.array([1], pa.decimal128(10, 2)), "_source": ["a"]})
    for _ in range(3):
        write_deltalake(str(root / "silver" / "t"), amounts, mode="append")
    text = json.dumps({"source": {"schema": "public", "table": "accounts"}, "tableChanges": [SCHEMA.change()]})
    write_deltalake(str(root / "schemas"), pa.table({"digest": ["d'1"], "text": [text]}))
    write_deltalake(str(root / "names"), pa.table({"stream": ["bank"], "table": [name], "name": ["accounts"]}))
    common = {"stream": "bank", "positions": [("jakarta/bank", "2")], "keyed": True}
    quality = [
        {"expectation": "positive", "expression": "amount >= 0", "total": 3, "total_failing": 1, "problem": None}
    ]
    rows = [common | {"load": load, "finished_at": NOW - timedelta(minutes=10 - load)} for load in (1, 2, 3)]
    rows += [
        common
        | {"table": name, "path": "silver/t", "load": load, "version": version, "changes": changes, "positions": None}
        | {"schemas": [("jakarta/bank", "d'1")], "quality": quality, "finished_at": NOW - timedelta(minutes=10 - load)}
        | more
        for load, version, changes in ((1, 1, 70), (2, 1, 0), (3, 2, 5))
    ]
    write_deltalake(str(root / "state"), pa.Table.from_pylist(rows, schema=STATE))


@pytest.fixture
def served(tmp_path):
    """Yield a function that returns the application over a lake in a folder."""
    started = []

    def serve(*, audit_file=None, loaded=None, manifest=None):
        lake = Lake(str(tmp_path))
        lake.look()
        assert lake.view().problem == ""
        details = TableDetails(str(tmp_path), audit_file=audit_file, manifest=manifest, wait_seconds=60)
        details.start()
        started.append(details)
        made = Served(tmp_path, lake.view(), details, loaded)
        made.hear(answer())
        return made

    yield serve
    for details in started:
        details.stop()


def address(view, **more):
    return plots.FILTERS["table_link"](view.tables[0]) + "".join(f"&{name}={value}" for name, value in more.items())


def words(text):
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())


def test_a_page_shows_columns_key_versions_quality_and_lineage_of_a_table_of_any_name(tmp_path, served):
    make_lake(tmp_path)
    page = served(loaded={"bank": Stream(sources=["jakarta/bank"], tables={HOSTILE: TableOptions(valid_view=True)})})
    found = page.get(address(page.lake.view()))
    assert found.status_code == 200
    assert "<script>alert" not in found.text
    assert "<b>secret" not in found.text
    text = words(found.text)
    assert "key: id" in text
    assert "id long int4 key" in text
    assert "amount decimal(10,2) numeric(10,2)" in text
    assert "&lt;b&gt;secret&lt;/b&gt; - text hash" in text
    assert "_source string -" in text
    assert "positive amount &gt;= 0 ▲ not met 1 of 3" in text
    assert "version: now 2, at most 2." in text
    assert "2 bars, the highest 70." in text
    assert "version 1, load 1," in text
    assert "jakarta/bank 2" in text
    for node in ("valid ● accounts", "silver_live ● accounts", "bronze ○ bank", "Kafka ● bank [0]"):
        assert node in text
    assert "history" not in text
    # It is linked from every place that names it.
    link = address(page.lake.view()).replace("&", "&amp;")
    assert link in page.get("/tables").text
    assert link in page.get("/sources/jakarta/bank").text


def test_a_table_that_stopped_is_linked_from_the_overview_and_its_page_has_the_next_step(tmp_path, served):
    make_lake(tmp_path, reason="column a became text", history=4)
    page = served()
    assert address(page.lake.view()).replace("&", "&amp;") in page.get("/").text
    text = words(page.get(address(page.lake.view(), range="7d")).text)
    assert text.count("olumn a became text") == 1
    assert "headrace lake load bank --config lake.toml" in text
    assert "history" in text


def test_a_table_that_was_never_made_has_a_page_without_versions(tmp_path, served):
    make_lake(tmp_path, version=None, reason="column a has no type")
    page = served()
    text = words(page.get(address(page.lake.view())).text)
    assert "defect" not in text
    assert "amount - numeric(10,2)" in text


def test_columns_of_a_former_version_are_read_again_after_a_read_that_failed(tmp_path, monkeypatch):
    make_lake(tmp_path)
    lake, details = Lake(str(tmp_path)), TableDetails(str(tmp_path))
    lake.look()
    (table,) = lake.view().tables
    key = (table.stream, table.table)
    details._details[key] = details.read(table)
    later = replace(table, version=table.version - 1)
    with monkeypatch.context() as patch:
        patch.setattr(OwnTables, "ask", lambda *_: 1 / 0)
        details._details[key] = details.read(later)
    assert "defect" in details._details[key].problem
    columns = []
    monkeypatch.setattr(table_detail, "_columns", lambda _, of: columns.append(of) or ((), ()))
    details.read(later)
    assert columns == [later]


def test_an_unknown_stream_or_table_is_404_and_says_so_escaped(tmp_path, served):
    make_lake(tmp_path)
    page = served()
    for path in ("/table", "/table?stream=bank&name=%3Cscript%3Ealert(1)", "/table?stream=other&name=public.accounts"):
        found = page.get(path)
        assert found.status_code == 404
        assert "<h1>No table" in found.text
        assert "<script>alert" not in found.text


def test_who_asked_last_is_shown_and_nothing_of_what_they_asked(tmp_path, served):
    make_lake(tmp_path)
    file = tmp_path / "audit.jsonl"
    lines = [
        {
            "at": "2026-01-01T10:00:00.123456789Z",
            "state": "begins",
            "user": "alice",
            "query": "SELECT * FROM silver.accounts",
        },
        {
            "at": "2026-01-02T10:00:00Z",
            "state": "begins",
            "user": "<b>bob</b>",
            "query": "select 'hunter2' FROM `Accounts`",
        },
        {"at": "2026-01-03T10:00:00Z", "state": "begins", "user": "carol", "query": "SELECT * FROM my_accounts"},
        {"at": "2026-01-03T11:00:00Z", "state": "ends", "user": "alice"},
        {"at": "2026-01-04T10:00:00Z", "state": "begins", "user": "alice", "query": "SELECT 1 FROM history.accounts"},
        ["no record"],
    ]
    file.write_text("\n".join(json.dumps(line) for line in lines) + "\n{half")
    page = served(audit_file=file)
    text = page.get(address(page.lake.view())).text
    assert "hunter2" not in text
    assert "SELECT" not in text
    shown = words(text)
    assert "alice 2026-01-04 10:00:00 UTC" in shown
    assert "&lt;b&gt;bob&lt;/b&gt; 2026-01-02 10:00:00 UTC" in shown
    assert "carol" not in shown
    assert shown.count("alice") == 1


def test_of_a_long_audit_file_the_end_alone_is_read(tmp_path):
    file = tmp_path / "audit.jsonl"
    line = json.dumps({"at": "2026-01-01T10:00:00Z", "state": "begins", "user": "old", "query": "accounts"}) + "\n"
    newest = json.dumps({"at": "2026-02-01T10:00:00Z", "state": "begins", "user": "new", "query": "accounts"}) + "\n"
    filler = json.dumps({"at": "2026-01-09T10:00:00Z", "state": "begins", "user": "x", "query": "y" * 9000}) + "\n"
    file.write_text(line + filler * 200 + newest)
    found = table_detail.find_reads(file, "accounts")
    assert [read.user for read in found.users] == ["new"]
    assert found.since == datetime(2026, 1, 9, 10, tzinfo=UTC)
    assert table_detail.find_reads(tmp_path / "none", "accounts") == table_detail.Reads(configured=True)


def test_an_audit_file_that_cannot_be_read_is_named(tmp_path):
    assert table_detail.find_reads(tmp_path, "accounts").problem == f"{tmp_path} cannot be read: Is a directory"


def test_a_page_costs_a_few_reads_and_none_while_nothing_is_new(tmp_path, served, monkeypatch):
    make_lake(tmp_path)
    page, reads = served(), []
    opened = OwnTables._opened

    def counted(self, *arguments):
        reads.append(arguments)
        return opened(self, *arguments)

    monkeypatch.setattr(OwnTables, "_opened", counted)
    for _ in range(5):
        assert page.get(address(page.lake.view())).status_code == 200
    assert sorted(reads) == [("schemas",), ("silver/t", 2), ("state",)]


def test_what_cannot_be_read_is_named_and_the_rest_of_the_page_is_there(tmp_path, served):
    make_lake(tmp_path, version=77)
    page = served()
    text = words(page.get(address(page.lake.view())).text)
    assert "Not all of this table can be read." in text
    assert "positive amount &gt;= 0" in text


def test_a_store_that_does_not_answer_delays_a_page_for_a_moment_only(tmp_path):
    view = whole_lake()
    page = Served(tmp_path, view, TableDetails(str(tmp_path), wait_seconds=0.1))
    begun = time.monotonic()
    found = page.get(address(view))
    assert time.monotonic() - begun < 30
    assert "its details are not read yet" in found.text


def test_details_of_so_many_tables_alone_are_kept(tmp_path):
    make_lake(tmp_path)
    lake = Lake(str(tmp_path))
    lake.look()
    (table,) = lake.view().tables
    details = TableDetails(str(tmp_path), wait_seconds=60)
    details.start()
    for number in range(table_detail._MOST_TABLES + 5):
        details.find(replace(table, table=f"public.t{number}"))
    details.stop()
    assert len(details._details) == table_detail._MOST_TABLES


def test_a_picture_draws_a_few_of_many_sources_the_worst_first(tmp_path):
    view = whole_lake()
    table = replace(view.tables[0], positions={f"r{number}/db": "1" for number in range(1000)} | {"jakarta/bank": "1"})
    page = Served(tmp_path, replace(view, tables=(table,)))
    heard = answer()
    heard.sources[0].edge_state = "silent"
    page.hear(heard)
    text = page.get(plots.FILTERS["table_link"](table)).text
    picture = text[text.index('<svg class="lineage"') :].partition("</svg>")[0]
    assert picture.count(">database<") == 5
    assert picture.index("jakarta/bank") < picture.index("/db")
    assert "and 996 more sources" in picture
    assert "The first 100 of 1001." in words(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("short", "short"),
        ("a" * 30, "a" * 8 + "…" + "a" * 9),
        ("漢" * 30, "漢" * 4 + "…" + "漢" * 4),
        ("a\u202eb", "a�b"),
        ("", ""),
    ],
)
def test_a_name_that_is_too_long_keeps_its_beginning_and_its_end(text, shown):
    assert lineage.shortened(text, 18) == shown


def node(name, *needed, kind="model", **more):
    return {
        "name": name,
        "resource_type": kind,
        "depends_on": {"nodes": needed},
        "config": {"materialized": "table"},
    } | more


SOURCES = {
    f"source.s.{schema}.{table}": {"schema": schema, "identifier": table, "name": table}
    for schema in ("silver", "history", "elsewhere")
    for table in ("accounts", "others")
}
READS_SILVER = "source.s.silver.accounts"


def test_the_models_of_dbt_that_read_a_table_are_in_its_picture(tmp_path, served):
    make_lake(tmp_path)
    manifest = tmp_path / "manifest.json"
    nodes = {
        "model.s.balances": node("balances", READS_SILVER),
        "model.s.moves": node("moves", "source.s.history.accounts"),
        "model.s.report": node("report", "model.s.balances", "model.s.report"),
        "model.s.apart": node("apart", "source.s.silver.others", "source.s.elsewhere.accounts"),
        "test.s.checked": node("checked", READS_SILVER, kind="test"),
    }
    page = served(manifest=manifest)
    where = address(page.lake.view())
    # there is no project yet
    assert "dbt" not in words(page.get(where).text)
    models = DbtModels(manifest)
    manifest.write_text(json.dumps({"nodes": nodes, "sources": SOURCES, "metadata": {"dbt_version": "1.10"}}))
    assert [name for name, _ in models.of("Accounts")] == ["dbt.balances", "dbt.moves", "dbt.report"]
    shown = words(served(manifest=manifest).get(where).text)
    for name in ("balances", "moves", "report"):
        assert f"dbt ● {name} table" in shown
    assert "apart" not in shown
    # many are counted, and a file that has changed is read again
    many = {f"model.s.m{number}": node(f"m{number}", READS_SILVER) for number in range(1000)}
    manifest.write_text(json.dumps({"nodes": many, "sources": SOURCES}))
    assert models.of("accounts")[-1] == ("dbt.…", "and 996 more models")
    assert len(models.of("accounts")) == 5
    manifest.unlink()
    assert models.of("accounts") == ()


def test_names_of_models_are_texts(tmp_path, served):
    make_lake(tmp_path)
    manifest = tmp_path / "manifest.json"
    hostile = "<script>alert(2)</script>\x1b[31m\u202e" + "x" * 1_000_000
    nodes = {"model.s.x": node(hostile, READS_SILVER, config={"materialized": "<b>table</b>"})}
    manifest.write_text(json.dumps({"nodes": nodes, "sources": SOURCES}))
    page = served(manifest=manifest)
    found = page.get(address(page.lake.view())).text
    assert "dbt" in words(found)
    assert "<script>alert" not in found
    assert "<b>table" not in found
    assert len(found) < 200_000


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"nodes": [], "sources": {}}',
        b'{"nodes": {"a": null}, "sources": {}}',
        b'{"nodes": {"a": {"depends_on": {"nodes": [1]}}}, "sources": {}}',
        b'{"nodes": {"a": {"name": "\\ud800"}}, "sources": {}}',
        b'{"nodes": {}, "sources": {}, "more": ' + b"[" * 200_000,
    ],
)
def test_what_is_no_manifest_is_said_to_be_none(tmp_path, text):
    manifest = tmp_path / "manifest.json"
    manifest.write_bytes(text)
    assert DbtModels(manifest).of("accounts") == (("dbt.manifest.json", "is no manifest of dbt's"),)


def test_a_manifest_that_is_too_large_or_no_file_is_not_read(tmp_path):
    large = tmp_path / "manifest.json"
    with large.open("wb") as file:
        file.truncate(10_000_000_000)
    assert DbtModels(large).of("accounts") == (("dbt.manifest.json", "is larger than 64 MB"),)
    os.mkfifo(tmp_path / "pipe")
    assert DbtModels(tmp_path / "pipe").of("accounts") == DbtModels(tmp_path).of("accounts") == ()
