"""A job of Flink's SQL on a table's topic, by the example, has the rows of the source's database."""

import json

import pytest

from tests.consumers.environment import EXAMPLES
from tests.consumers.flink_job import rows
from tests.consumers.test_by_key import DDL, WORK

RECORDS = {
    "usual": "truncates = false\ntombstones = true",
    "debezium": 'profile = "debezium"\ndecimal = "string"\ntime = "iso"',
}
ROWS = """select row_to_json(t)::text from (select id::text, owner, balance::text, opened::text, active::text, ratio::text, big,
          later::text from accounts) t"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("records", RECORDS)
def test_rows_are_those_of_the_source(records, stream):
    running = stream(DDL, ["accounts"], RECORDS[records])
    running.work([each.replace("truncate accounts", "delete from accounts where id >= 30") for each in WORK], "1")
    script = (EXAMPLES / "flink.sql").read_text().replace("kafka:9092", running.bootstrap)

    result = rows(script.replace("bank.public.accounts", running.topic_of("accounts")))

    expected = {row["id"]: row for row in (json.loads(row) for (row,) in running.database.execute(ROWS))}
    assert expected
    assert {row["id"]: row for row in result} == expected
    assert len(result) == len(expected)
