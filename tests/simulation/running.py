"""Loads the code under simulation once, and runs one seed of a scenario after the other."""

import logging
import traceback

from tests.simulation.kafka_admin import AdminClient
from tests.simulation.kafka_consumer import Consumer
from tests.simulation.kafka_writer import producer
from tests.simulation.loading import load

load({"Producer": producer, "Consumer": Consumer, "AdminClient": AdminClient})

import edge.agent  # noqa: E402 - the code has to be loaded before.
from tests.simulation import bridges, edges  # noqa: E402 - the code has to be loaded before.
from tests.simulation.asking import service_of  # noqa: E402
from tests.simulation.edge_scenario import EdgeScenario  # noqa: E402
from tests.simulation.outcome import FailedRunError  # noqa: E402
from tests.simulation.scheduler import EndlessLoopError  # noqa: E402
from tests.simulation.whole_scenario import (  # noqa: E402
    DeliveriesScenario,
    LeaderlessScenario,
    RequestsScenario,
    TablesScenario,
    WholeScenario,
)
from tests.simulation.world import world  # noqa: E402

edges.install()
edge.agent.request_service = service_of
bridges.install()


class _Trace(logging.Handler):
    """Puts what the code logs into the trace."""

    def emit(self, record: logging.LogRecord) -> None:
        scheduler = getattr(world, "scheduler", None)
        if scheduler is not None and not (scheduler.current and scheduler.current.kill):
            shown = record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                shown += " | " + "".join(traceback.format_exception(record.exc_info[1]))[-1500:]
            scheduler.trace(f"[{record.levelname.lower()}] {shown}")


logging.getLogger().handlers[:] = [_Trace()]
logging.getLogger().setLevel(logging.INFO)

_SCENARIOS = {
    "edge": EdgeScenario,
    "whole": WholeScenario,
    "deliveries": DeliveriesScenario,
    "tables": TablesScenario,
    "requests": RequestsScenario,
    "leaderless": LeaderlessScenario,
}


def run(scenario: str, seed: int, *, trace: bool = False) -> str | None:
    """Run a seed; return what is wrong and what happened last, None when all is well."""
    running = _SCENARIOS[scenario](seed)
    if trace:
        running.scheduler.on_trace = lambda line: print(line, flush=True)
    try:
        running.run()
    except (FailedRunError, EndlessLoopError) as problem:
        lines = "" if trace else "\n".join(running.scheduler.shown()) + "\n"
        again = f"PYTHONHASHSEED=0 python -m tests.simulation {scenario} --seed {seed} --trace"
        return f"{lines}seed {seed} of {scenario} failed: {problem}\nAgain: {again}"
    return None
