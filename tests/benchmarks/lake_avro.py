"""Bronze and silver from empty, of the same changes in Avro and in JSON: a part of `make bench-lake`.

The edge's own decoder makes the records, for a table of twelve columns with default identity, and their ids are put in as the
bridge does it. Both are in Kafka with the bridge's compression, each in a topic of its own; what a topic takes is the size of its
files at the broker. Processor time is that of the JVM and of the Python processes that it starts.
"""

import json
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from rich.console import Console

from edge.postgres.pgoutput import Decoder
from edge.records.avro_records import AvroRecords
from edge.records.batcher import Batcher
from headrace.batch import AVRO_MARK, CONTENT_ENCODING, Batch, decode
from headrace.configuration.edge import Records
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load as load_file
from headrace.position import Position
from headrace.schemas.avro_json.envelope import Reader
from infra.local.kafka import Kafka
from spark_jobs.bronze import load as bronze
from spark_jobs.silver import load as silver
from tests.benchmarks.results import Result, compared
from tests.unit.edge.postgres import messages
from tests.unit.edge.postgres.messages import INT4, INT8, NUMERIC, Column

SOURCE = "bench/lake"
Form = Literal["json", "avro"]
_FORMS: tuple[Form, ...] = ("json", "avro")
_PER_TRANSACTION = 50
_COLUMNS = [
    Column("id", INT8, key=True), Column("customer_id", INT4), Column("sku"), Column("quantity", INT4),
    Column("price", NUMERIC, modifier=(12 << 16 | 2) + 4), Column("status"), Column("note"), Column("placed_at", 1184),
    Column("branch"), Column("paid", 16), Column("weight", 701), Column("loaded_at", 1114),
]  # fmt: skip
#: What the bridge has of a topic with the default `max.message.bytes`.
_BATCH_SIZE = 1_048_576 - 512


def measure(console: Console, spark: SparkSession, folder: Path, kafka: Kafka, changes: int, runs: int) -> list[Result]:
    """Return sizes in Kafka, and rates and processor time of bronze and of silver, Avro next to JSON."""
    changes -= changes % _PER_TRANSACTION
    schemas: dict[int, str] = {}
    results = []
    with console.status(f"writing {changes:,} records to Kafka, twice"):
        sizes = {form: _fill(kafka, form, made(form, changes), schemas) for form in _FORMS}
    results.append(
        compared("a record in Kafka, Avro next to JSON", sizes["avro"] / changes, "bytes", sizes["json"] / changes)
    )
    results.append(Result("reading a record in Avro, without Spark", _alone(min(changes, 100_000)), "µs of CPU"))
    with _registry(schemas) as url:
        lakes = {form: _lake(folder, form, kafka.bootstrap, url) for form in _FORMS}
        times: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for run in range(runs + 1):
            # What runs first in a turn is the second in the next one.
            for form in _FORMS if run % 2 else reversed(_FORMS):
                for name, load in (("bronze", _bronze), ("silver", _silver)):
                    spent = _spent(partial(load, spark, lakes[form], form, changes))
                    if run:
                        times.setdefault((name, form), []).append(spent)
                # Schemas stay noted, as in a lake that runs.
                for part in ("bronze", "silver", "state"):
                    shutil.rmtree(f"{lakes[form].root}/{part}")
    middle = {each: [statistics.median(column) for column in zip(*spent, strict=True)] for each, spent in times.items()}
    for name in ("bronze", "silver"):
        (seconds, cpu), (peer, peer_cpu) = middle[name, "avro"], middle[name, "json"]
        title = f"{name} from empty, Avro next to JSON"
        results.append(compared(title, changes / seconds, "changes/s", changes / peer))
        results.append(
            compared(f"{title}, CPU", cpu / changes * 1e6, "s per million changes", peer_cpu / changes * 1e6)
        )
    return results


def _alone(changes: int) -> float:
    """Return the microseconds of CPU that the lake's reader takes for a record in this process."""
    schemas: dict[int, str] = {}
    records = [record for batch in made("avro", changes) for record in with_ids(batch, schemas)]
    reader = Reader(schemas, "", "")
    began = time.process_time()
    for offset, (key, value) in enumerate(records):
        reader("avro", 0, offset, key, value)
    return round((time.process_time() - began) / len(records) * 1e6, 1)


def made(form: Form, changes: int) -> Iterator[Batch]:
    """Return the batches of an edge: changes in transactions of fifty, 40 inserts, 8 updates and 2 deletes each."""
    records = Records(format=form)
    batcher = Batcher(source=SOURCE, tail=Position.start(1), avro=AvroRecords() if form == "avro" else None)
    decoder = Decoder(
        source=SOURCE, database="shop", epoch=1, batcher=batcher, key_of=lambda _: ["id"], records=records
    )
    for message in _log(changes):
        decoder.feed(message, messages.NOW_MS)
        yield from _opened(batcher.take())
    yield from _opened(filter(None, [batcher.seal()]))


def _opened(sealed: Any) -> Iterator[Batch]:
    return (decode(batch.properties, CONTENT_ENCODING, batch.body) for batch in sealed)


def with_ids(batch: Batch, schemas: dict[int, str]) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Return keys and values with the ids of their schemas, which are put into `schemas`."""
    ids = {}
    for each in batch.written:
        ids[each.mark] = 2 * each.number, 2 * each.number + 1
        schemas |= {2 * each.number: each.key or "", 2 * each.number + 1: each.value}
    for key, value in zip(batch.keys, batch.values, strict=True):
        if value and value[:1] == AVRO_MARK:
            heads = [AVRO_MARK + number.to_bytes(4, "big") for number in ids[value[:5]]]
            yield key and heads[0] + key[5:], heads[1] + value[5:]
        else:
            yield key, value


def _log(changes: int) -> Iterator[bytes]:
    yield from (messages.begin(1), messages.relation(*_COLUMNS, table="orders"), messages.commit(1, 2))
    for first in range(0, changes, _PER_TRANSACTION):
        at = 10 * first + 10
        yield messages.begin(at)
        for number in range(first, first + _PER_TRANSACTION):
            place = number - first
            if place < 40:
                yield messages.insert(*_row(number, "placed"))
            elif place < 48:
                yield messages.update(_row(number - 40, "shipped"))
            else:
                yield messages.delete(key=(number - 40, *[None] * (len(_COLUMNS) - 1)))
        yield messages.commit(at, at + 5)


def _row(number: int, status: str) -> tuple[messages.Value, ...]:
    note = f"to be delivered between nine and five, ring twice, floor {number % 10}"
    if number % 10 < 2:
        note = None if number % 10 else f'said "leave it at the door"\n{number}'
    at = f"2026-01-31 09:{number // 60 % 60:02}:{number % 60:02}.{number * 7919 % 10**6:06}"
    return (
        *(number, number % 9973, f"SKU-{number * 7919 % 100_000:06}", 1 + number % 9),
        *(f"{number * 31 % 100_000 / 100:.2f}", status, note, f"{at}+00"),
        *(f"branch {number % 211}", "ft"[number % 3 == 0], f"{number * 17 % 9000 / 8}", at),
    )


def _fill(kafka: Kafka, topic: str, batches: Iterator[Batch], schemas: dict[int, str]) -> int:
    """Write batches to a topic; return the size of its files."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer({
        "bootstrap.servers": kafka.bootstrap, "acks": "all", "enable.idempotence": True, "compression.type": "lz4",
        "linger.ms": 5_000, "batch.size": _BATCH_SIZE, "batch.num.messages": 100_000, "queue.buffering.max.messages": 0,
    })  # fmt: skip
    for batch in batches:
        for key, value in with_ids(batch, schemas):
            producer.produce(topic, value, key, 0)
        # As the bridge does at the end of a transaction, which has several of an edge's batches where there is much to do.
        producer.poll(0)
    producer.flush(120)
    return sum(file.stat().st_size for file in kafka.folder.rglob(f"{topic}-0/*.log"))


@contextmanager
def _registry(schemas: dict[int, str]) -> Iterator[str]:
    """Serve a registry's schemas by id."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"schema": schemas[int(self.path.rpartition("/")[2])]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *words: object) -> None:  # noqa: A002 - the library's name.
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _lake(folder: Path, stream: str, bootstrap: str, url: str) -> LakeFile:
    file = folder / f"{stream}.toml"
    file.write_text(
        f'[lake]\nroot = "of_{stream}"\n[kafka]\nbootstrap = "{bootstrap}"\n[registry]\nurl = "{url}"\n'
        f'[streams.{stream}]\nsources = ["{SOURCE}"]\n'
    )
    return load_file(file, LakeFile)


def _bronze(spark: SparkSession, lake: LakeFile, stream: str, changes: int) -> None:
    # The schema record is one more.
    assert bronze.load(spark, lake, stream).records == changes + 1


def _silver(spark: SparkSession, lake: LakeFile, stream: str, changes: int) -> None:
    report = silver.load(spark, lake, stream)
    assert report.changes == {"public.orders": changes}, report.problems


def _spent(work: Callable[[], None]) -> tuple[float, float]:
    """Return seconds and CPU seconds, of Python's processes too."""
    began, cpu = time.monotonic(), _cpu()
    work()
    return time.monotonic() - began, _cpu() - cpu


def _cpu() -> float:
    return sum(sum(process.cpu_times()[:4]) for process in _of_spark())


def _of_spark() -> Iterator[psutil.Process]:
    """Return Spark's JVM, and what it started."""
    for process in psutil.Process().children():
        if process.name() == "java" and any("SparkSubmit" in word for word in process.cmdline()):
            yield process
            yield from process.children(recursive=True)
