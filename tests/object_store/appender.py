"""A process that appends to one Delta table: `python -m tests.object_store.appender FILE`.

Each line of input is a writer's name and how often it commits.
"""

import sys

from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from spark_jobs.session import session


def main() -> None:
    """Append so many commits of a row each, for each line; print how many were reported as done."""
    lake = load(sys.argv[1], LakeFile)
    spark, path = session(lake), f"{lake.root}/proof"
    print("ready", flush=True)
    for line in sys.stdin:
        writer, count = line.split()
        for number in range(int(count)):
            row = spark.range(1).select(F.lit(writer).alias("writer"), F.lit(number).alias("number"))
            row.coalesce(1).write.format("delta").mode("append").save(path)
        print(f"done {count}", flush=True)


if __name__ == "__main__":
    main()
