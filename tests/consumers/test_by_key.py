"""Programs that keep rows by key from a table's topic have the rows of the source's database: Quix Streams, plain Spark."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra.local import jars
from tests.consumers.environment import ENVIRONMENT, EXAMPLES

DDL = """
create table accounts (id int primary key, owner text not null, balance numeric(12,2), opened date, active bool, ratio float8,
                       big text);
alter table accounts alter column big set storage external;
alter table accounts replica identity full
"""
ROWS = """select row_to_json(t)::text
from (select id, owner, balance::text, opened::text, active, ratio, big, later from accounts) t"""
COLUMNS = "id INT, owner STRING, balance STRING, opened STRING, active BOOLEAN, ratio DOUBLE, big STRING, later INT"
WORK = [
    """insert into accounts select n, 'Łukasz ' || n, n * 1.25, date '2026-01-01' + n, n % 2 = 0, n / 8.0 + 0.1, repeat('x', 5000)
       from generate_series(1, 60) n""",
    "truncate accounts",
    """insert into accounts select n, 'Łukasz ' || n, n * 1.25, date '2026-01-01' + n, n % 2 = 0, n / 8.0 + 0.1, repeat('x', 5000)
       from generate_series(30, 90) n""",
    "update accounts set balance = balance - 1, active = null where id % 3 = 0",
    "update accounts set id = id + 1000 where id % 7 = 0",
    "delete from accounts where id % 5 = 0",
    "alter table accounts add column later int",
    "insert into accounts (id, owner, later) values (5000, 'after the change', 1)",
]
#: The usual records, and Debezium's with what keeps numbers and dates readable as texts.
RECORDS = {
    "usual": "tombstones = true",
    "debezium": 'profile = "debezium"\ntruncates = true\ndecimal = "string"\ntime = "iso"',
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("records", RECORDS)
def test_rows_are_those_of_the_source(records, stream, tmp_path):
    running = stream(DDL, ["accounts"], RECORDS[records])
    running.work(WORK, "1")
    expected = in_order(json.loads(row) for (row,) in running.database.execute(ROWS))
    assert expected

    assert in_order(with_later(each) for each in quix(running)) == expected
    assert in_order(spark(running, tmp_path)) == expected


def quix(running):
    words = ["--bootstrap", running.bootstrap, "--topic", running.topic_of("accounts"), "--key", "id"]
    python = str(ENVIRONMENT / "bin" / "python")
    return lines(run([python, str(EXAMPLES / "quix_rows.py"), *words, "--group", running.topic]))


def spark(running, folder):
    words = ["--bootstrap", running.bootstrap, "--topic", running.topic_of("accounts"), "--key", "id"]
    words += ["--columns", COLUMNS, "--folder", str(folder / "spark")]
    submit = str(Path(sys.executable).parent / "spark-submit")
    options = ["--master", "local[2]", "--jars", ",".join(map(str, jars.spark())), "--conf", "spark.ui.enabled=false"]
    run([submit, *options, "--conf", "spark.sql.shuffle.partitions=2", str(EXAMPLES / "spark_rows.py"), *words])
    return lines("".join(path.read_text() for path in (folder / "spark" / "rows").glob("part-*")))


def run(words):
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def with_later(row):
    """A row that was written before the table was altered does not name the added column."""
    return {"later": None} | row


def in_order(rows):
    return sorted((dict(sorted(row.items())) for row in rows), key=lambda row: row["id"])
