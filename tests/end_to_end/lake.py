"""The lake compared with the databases: by `headrace verify`, and by counts and sums that have nothing to do with it."""

from typing import Any

from tests.end_to_end.pipeline import Pipeline

_COUNTS = """
    SELECT count(*) AS rows, CAST(sum({amount}) AS BIGINT) AS total FROM {table}
"""
_AMOUNTS = {
    "pgbench_accounts": "abalance",
    "pgbench_branches": "bbalance",
    "pgbench_tellers": "tbalance",
    "pgbench_history": "delta",
}


def assert_equal(pipeline: Pipeline) -> None:
    """Fail unless every table of the lake holds what the databases hold."""
    assert counts_of_the_lake(pipeline) == counts_of_the_databases(pipeline)
    pipeline.verify()


def counts_of_the_databases(pipeline: Pipeline) -> dict[tuple[str, str], Any]:
    """Return rows and sum of amounts of each table, by source and table."""
    found = {}
    for region in pipeline.regions:
        with region.connection() as connection, connection.cursor() as cursor:
            for table, amount in _AMOUNTS.items():
                cursor.execute(_COUNTS.format(table=table, amount=amount))
                found[region.source, table] = cursor.fetchone()
    return found


def counts_of_the_lake(pipeline: Pipeline) -> dict[tuple[str, str], Any]:
    """Return the same from the silver tables, in one query."""
    union = " UNION ALL ".join(
        f"SELECT _source, '{table}' AS name, count(*) AS rows, CAST(sum({amount}) AS BIGINT) AS total "
        f"FROM silver.{table} GROUP BY _source"
        for table, amount in _AMOUNTS.items()
    )
    return {(row["_source"], row["name"]): (row["rows"], row["total"]) for row in pipeline.ask(union)}
