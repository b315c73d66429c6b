"""Runs statements of ClickHouse's by chdb, which is ClickHouse in a process, under the Python of `.setup/consumers`.

`clickhouse.py FILE FOLDER CHANGES`: all statements but the last make tables; the lines of CHANGES go into the table of the first,
some twice, as from a consumer that is started again; then the last one prints its rows as JSON.
"""

import sys
from pathlib import Path

from chdb import session


def main(file: str, folder: str, changes: str) -> None:
    """Print the rows."""
    text = "\n".join(line for line in Path(file).read_text().splitlines() if not line.startswith("--"))
    *tables, question = (statement for statement in text.split(";") if statement.strip())
    clickhouse = session.Session(folder)
    for statement in tables:
        clickhouse.query(statement)
    lines = f"select json from file('{changes}', 'JSONAsString', 'json String')"
    clickhouse.query(f"insert into accounts_topic {lines}")
    clickhouse.query(f"insert into accounts_topic {lines} limit 100")
    print(clickhouse.query(question, "JSONEachRow"))
    clickhouse.close()


main(*sys.argv[1:])
