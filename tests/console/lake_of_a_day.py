"""A lake's own tables as the loads of a day leave them, for pictures and pages."""

import json
import math
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from headrace.schema import Column, TableSchema

SOURCES = (
    "jakarta/bank", "surabaya/bank", "singapore/wallet", "london/cards", "frankfurt/sales", "paris/sales", "madrid/sales",
    "oslo/sales", "austin/orders",
)  # fmt: skip
TABLES = ("accounts", "branches", "cards", "customers", "limits", "orders", "payments", "tellers")
#: Of a table that stopped, as loads write it.
REASON = (
    "column balance changed from numeric(10,2) to text, which silver cannot follow. Copy the table again at each source that "
    "changed it ('headrace edge snapshot public.tellers --replace'), load the stream, then run 'headrace lake rebuild bank "
    "public.tellers'"
)
POSITION = "68f1c2a0/{:016x}/00000003"


def make_manifest(file: Path) -> None:
    """Write dbt's manifest of a project with two models, one of which reads the other."""
    models = {"balances_by_day": "source.bank.silver.accounts", "risk": "model.bank.balances_by_day"}
    nodes = {
        f"model.bank.{name}": {
            "name": name,
            "resource_type": "model",
            "depends_on": {"nodes": [needed]},
            "config": {"materialized": "incremental" if name == "risk" else "table"},
        }
        for name, needed in models.items()
    }
    source = {"source.bank.silver.accounts": {"schema": "silver", "identifier": "accounts"}}
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"nodes": nodes, "sources": source}))


def make_lake(root: Path) -> None:
    """Write the lake's own tables as loads of a day leave them."""
    now = datetime.now(UTC)
    at, micro = now - timedelta(minutes=7), pa.timestamp("us", tz="UTC")
    places = [(name, POSITION.format(0x1EBCEF0 + number)) for number, name in enumerate(SOURCES)]
    texts = pa.map_(pa.string(), pa.string())
    quality = pa.struct(
        [(name, pa.string()) for name in ("expectation", "expression", "problem")]
        + [(name, pa.int64()) for name in ("total", "total_failing")]
    )
    state = pa.schema(
        [("stream", pa.string()), ("table", pa.string()), ("load", pa.int64()), ("positions", texts), ("reason", pa.string()),
         ("version", pa.int64()), ("keyed", pa.bool_()), ("warnings", texts), ("copying", texts), ("changes", pa.int64()),
         ("finished_at", micro), ("path", pa.string()), ("history", pa.int64()), ("schemas", texts),
         ("quality", pa.list_(quality))]
    )  # fmt: skip
    found = [{"stream": "bank", "table": None, "load": 96, "positions": places, "changes": 48_201, "finished_at": at}]
    found += [
        {"stream": "bank", "table": f"public.{name}", "load": 96, "version": 96, "keyed": True} for name in TABLES
    ]
    found[-1] |= {"positions": [places[4]]}
    found[-1] |= {"reason": REASON, "version": 71}
    _make_accounts(root, found)
    write_deltalake(str(root / "state"), pa.Table.from_pylist(found, schema=state))
    names = [{"stream": "bank", "table": f"public.{name}", "name": name} for name in TABLES]
    write_deltalake(str(root / "names"), pa.Table.from_pylist(names))
    one = pa.struct([("source", pa.string()), ("upto", pa.string()), ("commit_time", micro)])
    loads = pa.schema(
        [("stream", pa.string()), ("step", pa.string()), ("load", pa.int64()), ("started_at", micro), ("finished_at", micro),
         ("seconds", pa.float64()), ("rows", pa.int64()), ("files", pa.int64()), ("sources", pa.list_(one)),
         ("tables", pa.list_(pa.string()))]
    )  # fmt: skip
    done = []
    for number in range(96):
        end = at - timedelta(minutes=15 * (95 - number))
        busy = 1.2 + math.sin(number / 96 * 2 * math.pi - 1.5) + random.random() * 0.3
        for step, took, after in (("bronze", 6 * busy, 40), ("silver", 14 * busy, 0)):
            upto = [{"source": name, "upto": position, "commit_time": at} for name, position in places]
            count = round(21_000 * busy) - 37 * (step == "silver")
            last = end - timedelta(seconds=after)
            done.append(
                {"stream": "bank", "step": step, "load": number + 1 if step == "silver" else None, "seconds": took, "rows": count,
                 "started_at": last - timedelta(seconds=took), "finished_at": last, "files": 8, "tables": list(TABLES),
                 "sources": upto if number == 95 else []}
            )  # fmt: skip
    write_deltalake(str(root / "loads"), pa.Table.from_pylist(done, schema=loads))
    verdicts = [
        {"verified_at": now - timedelta(hours=3), "stream": "bank", "source": source, "table": f"public.{name}",
         "verdict": "not equal" if (source, name) == ("oslo/sales", "limits") else "equal", "rows_source": 120_000 + 7 * place,
         "rows_lake": 120_000 + 7 * place, "ranges": 10, "ranges_compared": 10}
        for source in SOURCES for place, name in enumerate(TABLES[:-1])
    ]  # fmt: skip
    write_deltalake(str(root / "verified"), pa.Table.from_pylist(verdicts))


def _make_accounts(root: Path, state: list[dict[str, Any]]) -> None:
    """Write the table `accounts` itself, and add to the rows of `state` what is known of it: columns, versions and quality."""
    columns = [("id", "int8", None, None, pa.int64()), ("branch", "int4", None, None, pa.int32())]
    columns += [("name", "varchar", 80, None, pa.string()), ("balance", "numeric", 12, 2, pa.decimal128(12, 2))]
    columns += [("opened", "date", None, None, pa.date32()), ("email", "text", None, None, pa.string())]
    columns += [("limits", "_int4", None, None, pa.list_(pa.int32()))]
    own = [("_source", pa.string()), ("_position", pa.string()), ("_commit_time", pa.timestamp("us", tz="UTC"))]
    empty = pa.schema([(name, kind) for name, *_, kind in columns] + own).empty_table()
    path = root / "silver" / "bank" / "public.accounts"
    for _ in range(97):
        write_deltalake(str(path), empty, mode="append")
    schema = TableSchema(
        schema="public",
        table="accounts",
        key=["id"],
        columns=[
            Column(
                name=name,
                type_name=kind,
                length=length,
                scale=scale,
                position=place,
                policy="hash" if name == "email" else None,
            )
            for place, (name, kind, length, scale, _) in enumerate(columns, 1)
        ],
    )
    text = json.dumps({"source": {"schema": "public", "table": "accounts"}, "tableChanges": [schema.change()]})
    write_deltalake(str(root / "schemas"), pa.table({"digest": ["a"], "text": [text]}))
    newest = next(row for row in state if row["table"] == "public.accounts")
    counted = [("positive", "balance >= 0", 0), ("named", "name IS NOT NULL AND name <> ''", 12)]
    newest |= {
        "path": "silver/bank/public.accounts",
        "history": 96,
        "changes": 2_140,
        "finished_at": state[0]["finished_at"],
    }
    newest |= {"schemas": [(source, "a") for source in SOURCES]}
    newest |= {
        "quality": [
            {"expectation": name, "expression": expression, "total": 1_080_063, "total_failing": failing}
            for name, expression, failing in counted
        ]
    }
    for load in range(1, 96):
        busy = 1.2 + math.sin(load / 96 * 2 * math.pi - 1.5)
        at = state[0]["finished_at"] - timedelta(minutes=15 * (96 - load))
        state.append(
            newest | {"load": load, "version": load, "changes": round(1700 * busy) + load % 7 * 60, "finished_at": at}
        )
    at = datetime.now(UTC)
    asked = [("d.tanaka", 190), ("dbt", 44), ("maria.santos", 3), ("superset", 1)]
    with (root / "audit.jsonl").open("w") as file:
        for user, minutes in asked:
            began = (at - timedelta(minutes=minutes)).isoformat()
            file.write(
                json.dumps({"at": began, "state": "begins", "user": user, "query": "SELECT * FROM accounts"}) + "\n"
            )
