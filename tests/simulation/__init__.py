"""The protocol under simulation: the real classes of edge and bridge in one process, with simulated AMQP, Kafka, clock and
threads.

`python -m tests.simulation --seeds 0:1000` runs seeds; `--seed N --trace` shows one. See scheduler.py for how a run is
deterministic, scenario.py for what happens in one, and checks.py for what must be true after it.
"""
