"""The statements by which SQL reads what is published: `lake.published` and `lake.tables`. Called by published_tables.py."""

from headrace.configuration.lake import LakeFile
from spark_jobs import quoting
from spark_jobs.state import published


def statements(lake: LakeFile) -> dict[str, str]:
    """Return them by name: publications of the last days, and the tables as they are published now."""
    rows = quoting.table(published.path(lake))
    newest = f"(SELECT max_by(struct(t.*), t.load) AS r FROM {rows} t GROUP BY t.stream, t.`table`)"  # noqa: S608 - ours.
    return {
        "published": f"""SELECT stream, load, started_at, finished_at, bronze_version, bronze_done, changes, positions
            FROM {rows} WHERE `table` IS NULL""",  # noqa: S608 - as above.
        "tables": f"""SELECT t.r.stream, t.r.`table`, t.r.path, t.r.version, t.r.history, t.r.load,
            coalesce(t.r.positions, s.r.positions) AS positions, t.r.state, t.r.reason
            FROM {newest} t JOIN {newest} s ON s.r.stream = t.r.stream AND s.r.`table` IS NULL
            WHERE t.r.`table` IS NOT NULL""",  # noqa: S608 - as above.
    }
