"""Apache Camel takes a table's topic to an AMQP queue, each change once, and to a file; killed and started again meanwhile."""

import json
import shutil
from pathlib import Path

import pytest

from tests.amqp.branch import Branch
from tests.consumers.environment import EXAMPLES
from tests.consumers.program import Program
from tests.kafka.reading import values
from tests.servers import jars
from tests.servers.artemis import Artemis

DDL = "create table accounts (id int primary key, owner text not null, balance numeric(12,2))"
ROWS = "select row_to_json(t)::text from (select id, owner, balance::text from accounts order by id) t"
BEFORE = ["insert into accounts select n, 'Łukasz ' || n, n * 1.25 from generate_series(1, 400) n"]
AFTER = [
    "update accounts set balance = balance - 1 where id % 3 = 0",
    "delete from accounts where id % 5 = 0",
    "insert into accounts values (5000, 'last', null)",
]


@pytest.fixture
def artemis(tmp_path):
    broker = Artemis(tmp_path / "artemis", users={"bridge": "secret", "jakarta-branch": "secret"})
    broker.start()
    yield broker
    broker.delete()


def camel(home: Path, **settings: str) -> Program:
    """Camel with the example's routes and other settings."""
    shutil.copytree(EXAMPLES / "camel", home)
    properties = home / "application.properties"
    # Of a setting that is given twice the last one holds.
    more = [f"{name.replace('__', '.')} = {value}" for name, value in settings.items()]
    properties.write_text("\n".join([properties.read_text(), *more]))
    program = ["org.apache.camel.main.Main"]
    return Program(home, [home, *jars.camel()], program, {"CAMEL_PASSWORD": "secret"})


@pytest.mark.timeout(400)
def test_each_change_is_in_the_queue_once_and_in_the_file(stream, artemis, tmp_path):
    running = stream(DDL, ["accounts"], "tombstones = true")
    topic, lines = running.topic_of("accounts"), tmp_path / "lines"
    program = camel(
        tmp_path / "camel",
        kafka=running.bootstrap,
        topic=topic,
        folder=str(lines),
        camel__beans__broker__remoteURI=f"amqp://{artemis.address}",
        camel__beans__broker__username="bridge",
    )
    branch = Branch(f"amqp://jakarta-branch:secret@{artemis.address}", "alerts/jakarta", credit=10_000)

    def in_file():
        path = lines / "changes.jsonl"
        return path.read_text().splitlines() if path.exists() else []

    def in_queue():
        return [message.body.decode() for _, _, message in list(branch.came)]

    # when it is killed soon after its first records, and started again
    try:
        running.work(BEFORE, "1")
        program.start()
        program.wait(lambda: in_file() and in_queue(), "it works")
        program.kill()
        running.work(AFTER, "2")
        expected = [value.decode() for value in values(running.bootstrap, topic) if value]
        program.start()
        program.wait(lambda: expected[-1] in in_file() and expected[-1] in in_queue(), "all has come")
    finally:
        program.kill()
        branch.close()

    # then the queue has each change once and in order, and the file's lines lead to the table's rows
    assert in_queue() == expected
    rows = {}
    for change in map(json.loads, in_file()):
        rows[(change["after"] or change["before"])["id"]] = change["after"]
    left = [rows[key] for key in sorted(rows) if rows[key] is not None]
    assert left == [json.loads(row) for (row,) in running.database.execute(ROWS)]
