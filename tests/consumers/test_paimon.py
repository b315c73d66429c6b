"""Paimon's parser makes of a table's records the rows of the source's database, and stops at a truncate."""

import json

import pytest
from py4j.protocol import Py4JJavaError

from tests.consumers.paimon import Paimon
from tests.consumers.test_by_key import DDL, WORK
from tests.kafka.reading import values

#: Paimon keeps rows by the table's primary key: an update takes the old row away first, whatever its key was.
RECORDS = {
    "usual": "tombstones = true",
    "debezium": 'profile = "debezium"\ntruncates = true\ndecimal = "string"\ntime = "iso"',
}
ROWS = """select row_to_json(t)::text from (select id::text, owner, balance::text, opened::text, active::text, ratio::text, big,
          later::text from accounts) t"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("records", RECORDS)
def test_rows_are_those_of_the_source(records, stream):
    running = stream(DDL, ["accounts"], RECORDS[records])
    running.work([each.replace("truncate accounts", "delete from accounts where id >= 30") for each in WORK], "1")
    topic = running.topic_of("accounts")
    rows = (json.loads(row) for (row,) in running.database.execute(ROWS))
    # Of records without a schema its parser makes texts alone, of NULL too.
    expected = {row["id"]: {name: value or "null" for name, value in row.items()} for row in rows}
    with Paimon() as paimon:
        result = paimon.rows(topic, [value for value in values(running.bootstrap, topic) if value], "id")
        assert {key: {"later": "null"} | row for key, row in result.items()} == expected

        running.work(["truncate accounts"], "2")
        with pytest.raises(Py4JJavaError, match="Unknown record operation: t"):
            paimon.rows(topic, [value for value in values(running.bootstrap, topic) if value], "id")
