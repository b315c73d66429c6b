"""A real Prometheus on this machine that scrapes edges and bridges and loads the alert rules.

For `make monitoring`, and for the tests of the rules.

The program is Debian's, unpacked into .setup/prometheus without being installed (`make .setup/prometheus/ready`), or one on PATH.
"""

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.errors import NeedsOperator

_ROOT = Path(__file__).parents[2]
MONITORING = _ROOT / "infra" / "monitoring"
_UNPACKED = _ROOT / ".setup" / "prometheus" / "usr" / "bin"


def program(name: str) -> Path:
    """Return the path of `prometheus` or `promtool`; raise NeedsOperator when there is none."""
    if (_UNPACKED / name).exists():
        return _UNPACKED / name
    if (result := shutil.which(name)) is not None:
        return Path(result)
    raise NeedsOperator(
        f"there is no {name} here", hint="Run 'make .setup/prometheus/ready' on Debian, or put it on PATH."
    )


def read_rules(*places: str) -> str:
    """Return the alert rules for a Prometheus at these places, in one file: headquarters, region, lake."""
    texts = [(MONITORING / "alerts" / f"{place}.yml").read_text(encoding="utf-8") for place in places]
    return "groups:\n" + "".join(text.partition("groups:\n")[2] for text in texts)


class Prometheus:
    """One process with its files in one folder; it listens on the loopback address."""

    def __init__(self, folder: Path, port: int, targets: Sequence[str], rules: str, *, interval: str = "5s") -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._folder = folder
        self._port = port
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "alerts.yml").write_text(rules, encoding="utf-8")
        configuration = {
            "global": {"scrape_interval": interval, "evaluation_interval": interval},
            "rule_files": ["alerts.yml"],
            "scrape_configs": [{"job_name": "headrace", "static_configs": [{"targets": list(targets)}]}],
        }
        # JSON is YAML.
        (folder / "prometheus.yml").write_text(json.dumps(configuration, indent=1), encoding="utf-8")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it is ready within some seconds."""
        with (self._folder / "prometheus.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    program("prometheus"),
                    f"--config.file={self._folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                stdout=log,
                stderr=log,
            )

    @property
    def ready(self) -> bool:
        """Whether it answers."""
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
        return False

    def stop(self) -> None:
        """End it."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series that an expression has now."""
        data: list[dict[str, Any]] = self._get(f"query?{urllib.parse.urlencode({'query': expression})}")["result"]
        return data

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        return {each["labels"]["alertname"] for each in self._get("alerts")["alerts"] if each["state"] == "firing"}

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=10) as answer:
            return json.load(answer)["data"]


def _main() -> None:
    options = argparse.ArgumentParser(description="Run Prometheus for edges and bridges until it is interrupted.")
    options.add_argument("--folder", type=Path, default=Path(".headrace/monitoring"))
    options.add_argument("--port", type=int, default=9090)
    options.add_argument("targets", nargs="+", metavar="HOST:PORT", help="[metrics] listen of an edge or a bridge")
    given = options.parse_args()
    try:
        server = Prometheus(given.folder.absolute(), given.port, given.targets, read_rules("headquarters", "region"))
        server.start()
    except NeedsOperator as error:
        sys.exit(f"{error.message}. {error.hint}")
    print(f"{server.url}/alerts, {server.url}/graph; Ctrl-C ends it")
    assert server.process is not None
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(server.process.wait())
    server.stop()


if __name__ == "__main__":
    _main()
