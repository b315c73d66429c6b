"""`python -m tests.console.pictures FOLDER`: the pictures of docs/console.md, in light and dark.

Figures of the sources and rows of the lake are set by hand, so that the pictures show a pipeline of months. The bridge's
endpoint, the console and the browser are real.
"""

import math
import random
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import sync_playwright

from bridge.metrics import Complete, SourceMetrics
from bridge.service import BridgeService
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.console import sources
from headrace.console.lake import RetentionView
from headrace.console.lineage import MANIFEST
from headrace.console.server import Console, Settings
from headrace.console.sources import Files
from headrace.metrics.endpoint import Endpoint
from headrace.retention import StreamRetention
from tests.console.conftest import CHROMIUM
from tests.console.lake_of_a_day import POSITION, SOURCES, make_lake, make_manifest

PAGES = {
    "overview": "/",
    "source": "/sources/singapore/wallet",
    "snapshot": "/sources/frankfurt/sales",
    "loads": "/loads?range=24h",
    "tables": "/tables",
    "table": "/table?stream=bank&name=public.accounts",
    "stopped": "/table?stream=bank&name=public.tellers",
    "trends": "/trends?range=2h",
}


def figures(number: int) -> SourceMetrics:
    """Return the figures of a source; three of them have something else wrong."""
    found = SourceMetrics(state="serving", heard_at=time.monotonic(), complete=Complete(time.monotonic(), 0.1, 0))
    found.position = POSITION.format(0x1EBCEF0 + number)
    found.edge = {
        "state": "capturing",
        "heartbeat_seconds": 30.0,
        "captured_lag_seconds": 0.02,
        "accepted_lag_seconds": 0.11,
    }
    found.edge |= {"spool_bytes": 0, "spool_limit_bytes": 8 << 30, "retained_wal_bytes": (3 + 17 * number) << 20}
    found.edge |= {"safe_wal_bytes": 16 << 30, "unacknowledged_batches": number % 3, "version": "0.2.0"}
    found.edge |= {"cpu_cores": 0.05 + 0.03 * number, "memory_bytes": (70 + number) << 20}
    found.edge |= {"in_flight_ratio": 0.04 * number}
    found.rate.add(9000 + 1700 * number)
    found.received_rate.add(160_000 + 29_000 * number)
    found.written_rate.add(900_000 + 170_000 * number)
    if SOURCES[number] == "frankfurt/sales":
        found.edge |= {"snapshot_table": "public.orders", "snapshot_rows": 1_734_200, "snapshot_estimate": 4_100_000}
        found.edge |= {"snapshot_rows_per_second": 21_400.0, "snapshot_tables": 3}
    match SOURCES[number]:
        case "singapore/wallet":
            found.heard_at -= 140
            found.complete = Complete(time.monotonic() - 140, 0.1, 0)
        case "oslo/sales":
            found.edge["spool_bytes"] = 7 << 30
        case "madrid/sales":
            found.edge |= {"state": "database down", "reason": "connection refused at 10.20.0.12:5432"}
    return found


def make_history(console: Console) -> None:
    """Note figures of two hours, with a disturbance in them."""
    now = time.time()
    for ago in range(719, -1, -1):
        odd = 35.0 * math.exp(-(((ago - 260) / 18) ** 2))
        lags = {
            name: 0.3 + 0.2 * math.sin(ago / 40 + place) + random.random() * 0.2 for place, name in enumerate(SOURCES)
        }
        lags["singapore/wallet"] += odd + max(0, 14 - ago) * 10.0
        rates = {
            name: 900 + 350 * math.sin(ago / 90 + place) + random.random() * 60 for place, name in enumerate(SOURCES)
        }
        fresh = 900 - ago * 10 % 900 + 20.0
        noted = {(sources.LAG, name): value for name, value in lags.items()}
        noted |= {(sources.RATE, name): value for name, value in rates.items()}
        noted |= {(sources.FRESH, name): fresh for name in SOURCES}
        noted |= {(sources.LAG, sources.ALL): max(lags.values()), (sources.RATE, sources.ALL): sum(rates.values())}
        console.pages.history.record(noted | {(sources.FRESH_OF_STREAM, "bank"): fresh}, now - ago * 10)


def take(url: str, folder: Path) -> None:
    """Take every page in light and dark."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport={"width": 1240, "height": 760}, color_scheme=scheme)
            for name, path in PAGES.items():
                page.goto(url + path.lstrip("/"))
                page.screenshot(
                    path=folder / f"console-{name}-{scheme}.png",
                    full_page=name in {"overview", "tables", "table", "stopped", "snapshot"},
                )
        browser.close()


def main(folder: Path) -> None:
    """Start all, take the pictures, end all."""
    random.seed(20)
    with tempfile.TemporaryDirectory(prefix="headrace-pictures-") as name:
        scratch = Path(name)
        sources = {source: figures(number) for number, source in enumerate(SOURCES)}
        service = BridgeService(lambda: sources, dict, lambda: True, lambda: "", {}, {}, dict)
        service.waits_for = ""
        endpoint = Endpoint("127.0.0.1:0", service)
        owned = ", ".join(f'"{source}" = [{number}]' for number, source in enumerate(SOURCES))
        head = '[kafka]\nbootstrap = "kafka:9092"\n'
        (scratch / "bridge.toml").write_text(
            f'{head}[interconnect]\nlisten = "127.0.0.1:5671"\n[streams.bank]\nsources = {{ {owned} }}\n'
        )
        (scratch / "lake.toml").write_text(
            f'{head}[lake]\nroot = "lake"\n[streams.bank]\nsources = {list(SOURCES)}\n'.replace("'", '"')
            + '[streams.bank.tables."public.accounts"]\nvalid_view = true\n[serve]\naudit = "lake/audit.jsonl"\n'
        )
        make_lake(scratch / "lake")
        make_manifest(scratch / MANIFEST)
        settings = Settings(
            bridge=load(scratch / "bridge.toml", BridgeFile),
            at=(f"127.0.0.1:{endpoint.port}",),
            lake=load(scratch / "lake.toml", LakeFile),
            port=0,
        )
        console = Console(settings)
        # Paths as they are where a console runs.
        files = Files("/etc/headrace/bridge.toml", "/etc/headrace/lake.toml")
        console.pages._known = replace(console.pages._known, files=files)
        # Of Kafka, which is not here, it shows what follows.
        console._retention._file = None
        stream = StreamRetention(retention=7 * 86_400.0, removal_at=time.time() + 6.9 * 86_400)
        console._retention._view = RetentionView(streams={"bank": stream}, asked=True)
        make_history(console)
        server = threading.Thread(target=console.run)
        server.start()
        time.sleep(4)
        try:
            take(console.url, folder)
        finally:
            console.stop()
            server.join(30)
            endpoint.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
