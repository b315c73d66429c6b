"""Fixtures: an edge in a process of its own with its database, and a bridge and topics by which headquarters asks it."""

import pytest

from headrace.configuration.lake import Kafka
from headrace.verify.sources import RemoteDatabase
from spark_jobs.kafka.requests import RequestTopics
from tests.bridge.asked_edges import SOURCE, AskedTopics


class Asked:
    """An edge of a database, in a process of its own, and those who ask it."""

    def __init__(self, database, edge, kafka, topics, path):
        self.database, self.edge, self.path = database, edge, path
        self._kafka, self._topics = kafka, topics

    def wire(self, *, topics=None):
        return RequestTopics(Kafka(bootstrap=self._kafka.bootstrap), topics or self._topics.names)

    def verify(self, wire, *, seconds=90, placed=True):
        return RemoteDatabase.connect(SOURCE, wire, seconds=seconds, placed=placed)

    def held(self):
        """Return how many connections the edge has for verifications."""
        ((count,),) = self.database.execute(
            "select count(*) from pg_stat_activity where application_name = 'headrace verify' and datname = current_database()"
        )
        return count


@pytest.fixture
def asked(database, edges, inside, kafka, topic, tmp_path):
    topics, name = AskedTopics(topic), topic()
    bridge = inside(kafka.bootstrap, {SOURCE: [0]}, topic=name, more=topics.section)
    database.execute("create table accounts (id int primary key, name text, balance numeric(10,2))")
    database.execute("insert into accounts select n, 'name ' || n, n + 0.25 from generate_series(1, 2000) n")
    database.execute(
        "create table wide (id int primary key, a text, b bytea); create table hidden (id int primary key)"
    )
    # Else the server does it, at any time, and estimates change.
    database.execute("analyze accounts; analyze wide")
    edge = edges(
        database,
        f"amqp://127.0.0.1:{bridge.port}",
        rest='[requests]\nallow = ["status", "doctor", "verify", "snapshot"]\n[policy]\nexclude_tables = ["public.hidden"]\n'
        '[[policy.columns]]\ncolumns = ["public.wide.a"]\naction = "mask"\n',
    )
    edge.init()
    edge.start()
    return Asked(database, edge, kafka, topics, next(tmp_path.glob("bridge-*.toml")))
