"""Read the lake from Python without a JVM, at what is published: the extra `reader` (docs/reader.md).

    lake = open("lake.toml")
    lake.table("silver.accounts").to_polars()
    now = lake.at()                       # all tables at one publication
    now.table("silver.accounts"), now.table("silver.docs")

Other Delta readers show each table at its newest version, half of a load among them, and refuse what these tables use.

    storage             files under the lake's root
    delta_log           a table's files and columns at a version, by its log
    deletion_vectors    rows of a file that are deleted
    published           which version of each table was published, and under which name
    table               a table's columns and rows as Arrow, Polars, pandas or a relation of DuckDB
    duckdb_views        SQL whose views show the tables in DuckDB
    own_tables          SQL over the lake's own tables, for the console

Nothing here writes, nor imports Spark.
"""

from headrace.lake_reader.lake import Lake, open  # noqa: A004 - as `gzip.open` is called.
from headrace.lake_reader.table import LakeTable

__all__ = ["Lake", "LakeTable", "open"]
