"""Read the lake from Python without a JVM, at what is published: the extra `reader` (docs/reader.md).

    lake = open("lake.toml")
    lake.table("silver.accounts").to_polars()
    now = lake.at()                       # all tables at one publication
    now.table("silver.accounts"), now.table("silver.docs")

Other Delta readers show each table at its newest version, half of a load among them, and refuse what these tables use.

    storage             files under the lake's root, and what an object store needs
    delta_log           a table's files, their deleted rows and its columns at a version, by its log
    own_tables          the lake's own tables: SQL over them, for the console; which version of each table was published
    table               a table's rows as Arrow, Polars, pandas or a relation of DuckDB
    lake                tables at one publication; views of them for DuckDB; `lake.published` and `lake.tables`

Nothing here writes, nor imports Spark.
"""

from headrace.lake.lake import Lake, open  # noqa: A004 - as `gzip.open` is called.
from headrace.lake.table import LakeTable

__all__ = ["Lake", "LakeTable", "open"]
