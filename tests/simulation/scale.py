"""A look beyond one machine: many sources and bridges, rolling restarts; counts messages, rebalances and how long sources wait.

`python -m tests.simulation.scale --sources 1000 --bridges 100`: real bridges, real senders of edges, a router, a simulated Kafka.
Time is virtual: what counts are messages and the order of things, not the speed of a machine.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from typing import Any


def main() -> None:
    """Run it and print what was counted."""
    parser = argparse.ArgumentParser(prog="tests.simulation.scale")
    parser.add_argument("--sources", type=int, default=1000)
    parser.add_argument("--bridges", type=int, default=100)
    parser.add_argument("--restarts", type=int, default=3, help="bridges that are restarted, one after the other")
    parser.add_argument("--pace", type=float, default=5.0, help="seconds between the changes of a source")
    parser.add_argument("--kills", type=int, default=1, help="bridges that are killed and do not come back")
    parser.add_argument(
        "--heartbeat", type=float, help="seconds between a member's heartbeats, in place of the bridge's"
    )
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation.scale", *sys.argv[1:]])
    from tests.simulation import running  # noqa: F401, PLC0415 - loads the code under simulation.
    from tests.simulation.kafka_consumer import Consumer  # noqa: PLC0415 - as above.
    from tests.simulation.scale_run import ScaleRun  # noqa: PLC0415 - after that.

    Consumer.beat = arguments.heartbeat
    for name, value in _shown(
        ScaleRun(**{name: value for name, value in vars(arguments).items() if name != "heartbeat"}).run()
    ):
        print(f"{name:60} {value}", flush=True)


def _shown(found: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, str]]:
    for name, value in found:
        yield name, f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"


if __name__ == "__main__":
    main()
