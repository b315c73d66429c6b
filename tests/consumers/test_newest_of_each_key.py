"""ClickHouse and Pathway, which keep the newest change of each key by its position, have the rows of the source's database."""

import json
import re
from pathlib import Path

import pytest

from tests.consumers.environment import ENVIRONMENT, EXAMPLES
from tests.consumers.test_by_key import DDL, ROWS, WORK, in_order, lines, run, with_later
from tests.kafka.reading import values

#: What these two need: a changed key as delete and create. They have nothing for a truncate.
RECORDS = {
    "usual": 'key_change = "delete-create"\ntruncates = false',
    "debezium": 'profile = "debezium"\ndecimal = "string"\ntime = "iso"',
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("records", RECORDS)
def test_rows_are_those_of_the_source(records, stream, tmp_path):
    running = stream(DDL, ["accounts"], RECORDS[records])
    running.work([each.replace("truncate accounts", "delete from accounts where id >= 30") for each in WORK], "1")
    expected = in_order(json.loads(row) for (row,) in running.database.execute(ROWS))
    assert expected

    assert in_order(with_later(each) for each in pathway(running)) == expected
    assert in_order(clickhouse(running, tmp_path)) == expected


def pathway(running):
    words = ["--bootstrap", running.bootstrap, "--topic", running.topic_of("accounts"), "--key", "id"]
    return lines(run([str(ENVIRONMENT / "bin" / "python"), str(EXAMPLES / "pathway_rows.py"), *words]))


def clickhouse(running, folder):
    # ClickHouse's own consumer of Kafka does not start in chdb ("Shutdown was called"): its table gets the records from a file.
    text, engine = (EXAMPLES / "clickhouse.sql").read_text(), re.compile(r"engine = Kafka.*?;", re.DOTALL)
    assert engine.search(text)
    (folder / "clickhouse.sql").write_text(engine.sub("engine = Null;", text, count=1))
    records = [value.decode() for value in values(running.bootstrap, running.topic_of("accounts")) if value]
    (folder / "changes").write_text("\n".join(records))
    words = [str(folder / name) for name in ("clickhouse.sql", "clickhouse", "changes")]
    result = lines(run([str(ENVIRONMENT / "bin" / "python"), str(Path(__file__).with_name("clickhouse.py")), *words]))
    return [row | {"balance": f"{row['balance']:.2f}" if row["balance"] is not None else None} for row in result]
