"""A second process that loads and stops itself at a named step, JVM and all: `python -m tests.lake.writer FILE STREAM`.

Reads from standard input, a line for each load, the step at which it stops (SIGSTOP), and prints how the load ended.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load as load_file
from headrace.errors import ReplicationError, Retryable
from spark_jobs.bronze import load as bronze
from spark_jobs.bronze import sink
from spark_jobs.session import session
from spark_jobs.silver import load as silver
from spark_jobs.silver import merge as write
from spark_jobs.state import offsets, publication


def stop() -> None:
    """Stop this process and its JVM until another one continues them."""
    print("stopped", flush=True)
    # The JVM belongs to the group, which is this process's own.
    os.killpg(os.getpgrp(), signal.SIGSTOP)


def once(function: Callable[..., Any], *, before: bool) -> Callable[..., Any]:
    """Return the function with a stop before, or after, its first call."""
    left = [True]

    def stopping(*args: Any, **kwargs: Any) -> Any:
        if before and left:
            left.clear()
            stop()
        result = function(*args, **kwargs)
        if not before and left:
            left.clear()
            stop()
        return result

    return stopping


def stop_in_write(folder: Path) -> None:
    """Stop as soon as the table has another data file: its commit comes later."""
    known = set(folder.glob("*.parquet"))
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if set(folder.glob("*.parquet")) - known:
            stop()
            return


def load_silver(spark: SparkSession, lake: LakeFile, stream: str, step: str) -> str:
    """Load silver once, with a stop at the step; return how it ended."""
    merge, append = write.merge, publication.append
    if step == "silver, merging":
        write.merge = once(merge, before=True)
    elif step == "silver, publishing":
        publication.append = once(append, before=True)
    try:
        return f"loaded {sum(silver.load(spark, lake, stream).changes.values())}"
    except ReplicationError as error:
        return f"{'Retryable' if isinstance(error, Retryable) else type(error).__name__} {error.message}"
    finally:
        write.merge, publication.append = merge, append


def load(spark: SparkSession, lake: LakeFile, stream: str, step: str) -> str:
    """Load bronze once, with a stop at the step; return how it ended."""
    noted, mirror = offsets.of_table, sink.mirror
    if step == "noted":
        offsets.of_table = once(noted, before=False)
    elif step == "committed":
        sink.mirror = once(mirror, before=True)
    elif step == "writing":
        threading.Thread(target=stop_in_write, args=(Path(bronze.table_path(lake, stream)),), daemon=True).start()
    try:
        return f"loaded {bronze.load(spark, lake, stream).records}"
    except ReplicationError as error:
        return f"{'Retryable' if isinstance(error, Retryable) else type(error).__name__} {error.message}"
    finally:
        offsets.of_table, sink.mirror = noted, mirror


def main() -> None:
    """Load as often as lines come."""
    file, stream = sys.argv[1:]
    lake = load_file(file, LakeFile)
    spark = session(lake)
    print("ready", flush=True)
    for line in sys.stdin:
        step = line.strip()
        print((load_silver if step.startswith("silver") else load)(spark, lake, stream, step), flush=True)


if __name__ == "__main__":
    main()
