"""A process that loads a lake many times: `python -m tests.lake.heap FOLDER driver|server LOADS…`, as which of the two.

Prints, after each of these numbers of loads, the bytes of the driver's heap that are in use after collections, as a JSON object.
It is a process of its own because a test run's session keeps more of the past than a user's.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.warm_loads import Request
from spark_jobs.serve import server
from spark_jobs.serve.server import Loader
from spark_jobs.session import session
from tests.lake.logged import LoggedLake

NOTE = {"id": ("int8", None, None), "note": ("text", None, None)}


def used(spark: SparkSession) -> int:
    """Return the bytes in use once collections free nothing more: what one leaves to a cleaner of Spark's, a later one frees."""
    java = spark._jvm.java.lang
    runtime, found = java.Runtime.getRuntime(), []
    while len(found) < 3 or min(found[-2:]) < 0.99 * min(found[:-2]):
        java.System.gc()
        found.append(runtime.totalMemory() - runtime.freeMemory())
    return int(min(found))


def main(folder: Path, kind: str, *measured: int) -> None:
    """Load one changed table again and again."""
    lake = LoggedLake(None, folder)  # type: ignore[arg-type] - the session is made by the lake's file.
    found = {}
    if kind == "server":
        served = session(lake.file, more_jars=[server.jar()], fixed=server.FIXED)
        loader = Loader(served, lake.file)
        lake.spark = loader.session(few=False)
    else:
        lake.spark = session(lake.file)

    def load() -> dict[str, int]:
        if kind == "driver":
            return lake.load().changes
        lake.to_bronze()
        answer = loader.run("tag", Request(config=lake.file.path, stream="bank", only="silver"), lambda *_: None)
        return answer.report["silver"]["changes"]

    for number in range(1, max(measured) + 1):
        for feed in lake.feeds:
            changes = [feed.schema(NOTE, table="public.t")] if number == 1 else []
            feed.commit(*changes, feed.insert("public.t", id=number, note=f"note {number}"))
        assert load() == {"public.t": len(lake.feeds)}
        if number in measured:
            found[number] = used(lake.spark)
            print(number, found[number], file=sys.stderr, flush=True)
    lake.spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
