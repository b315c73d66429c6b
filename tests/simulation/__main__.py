"""Runs seeds: `python -m tests.simulation edge --seeds 0:1000`, or `--seed 17 --trace`."""

import argparse
import gc
import itertools
import logging
import os
import subprocess
import sys
import time
import traceback


def main() -> int:
    """Run what the command line names; return the number of failed seeds, at most 1."""
    parser = argparse.ArgumentParser(prog="tests.simulation")
    parser.add_argument(
        "scenario", choices=("edge", "whole", "deliveries", "tables", "requests", "leaderless"), nargs="+"
    )
    parser.add_argument("--seeds", default="0:100", help="FIRST:BEYOND")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--trace", action="store_true", help="show all that happens")
    parser.add_argument("--processes", type=int, default=1, help="share the seeds among so many")
    parser.add_argument("--keep-going", action="store_true", help="go on after a seed that fails")
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    if arguments.processes > 1:
        return _share(arguments)
    from tests.simulation import running  # noqa: PLC0415 - only with hashes that repeat.

    logging.getLogger().addHandler(logging.NullHandler())
    first, _, beyond = arguments.seeds.partition(":")
    seeds = [arguments.seed] if arguments.seed is not None else range(int(first), int(beyond or int(first) + 1))
    began, failed, ran = time.monotonic(), 0, 0
    gc.disable()
    for seed in seeds:
        for scenario in arguments.scenario:
            ran += 1
            problem = running.run(scenario, seed, trace=arguments.trace)
            if problem is not None:
                failed += 1
                print(problem, flush=True)
                if not arguments.keep_going:
                    return 1
        if ran % 20 == 0:
            gc.collect()
    seconds = time.monotonic() - began
    print(f"{ran} runs in {seconds:.1f} s, {failed} failed")
    return int(failed > 0)


def _share(arguments: argparse.Namespace) -> int:
    """Run parts of the seeds in processes of their own."""
    first, beyond = map(int, arguments.seeds.split(":"))
    ends = [first + (beyond - first) * n // arguments.processes for n in range(arguments.processes + 1)]
    more = ["--keep-going"] if arguments.keep_going else []
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.simulation", *arguments.scenario, "--seeds", f"{one}:{other}", *more]
        )
        for one, other in itertools.pairwise(ends)
    ]
    return max([each.wait() for each in running])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        traceback.print_exc()
        sys.exit(130)
