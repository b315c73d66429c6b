"""What a load does with a metastore that refuses a table, or is slow."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.errors import NotConnected, Retryable
from spark_jobs.query import metastore, metastore_client
from spark_jobs.state import names, published
from spark_jobs.state.published_rows import Published, Table
from tests.unit.headrace.test_configuration import LAKE

TABLES = ("public.a", "public.b", "public.c")


class Metastore:
    """Keeps what it is given, in memory; refuses some names."""

    def __init__(self):
        self.kept, self.marks, self.refused = {}, {}, set()

    def database(self, name, *, make):
        assert make
        return self.marks

    def mark(self, _, marks):
        self.marks |= marks

    def shows(self, database, name, described):
        return self.kept.get((database, name)) == described

    def put(self, database, name, described, *, view):
        if name in self.refused:
            raise Py4JError("no such name")
        self.kept[database, name] = described


@pytest.fixture
def hive(monkeypatch):
    state = Published(stream="bank", load=4, tables={name: Table(table=name, version=1) for name in TABLES})
    monkeypatch.setattr(published, "latest", lambda *_: state)
    monkeypatch.setattr(names, "of", lambda _, __, places: {place: place[1].partition(".")[2] for place in places})
    monkeypatch.setattr(metastore, "_describe", lambda *given: given[2])
    server = Metastore()

    @contextmanager
    def connected(*_):
        yield server

    monkeypatch.setattr(metastore_client, "connected", connected)
    return server


@pytest.fixture
def lake(tmp_path):
    (tmp_path / "lake.toml").write_text(f'{LAKE}\n[metastore]\nuri = "thrift://hive:9083"\n')
    return load(tmp_path / "lake.toml", LakeFile)


def test_a_table_that_is_refused_keeps_no_other_one_away(hive, lake):
    hive.refused = {"b"}
    # when
    with pytest.raises(Retryable, match=r"1 tables .*: b \(Py4JError\)"):
        metastore.register(None, lake, "bank")
    assert {name for _, name in hive.kept} == {"a", "c"}
    # then the next load tries it again, and it alone
    hive.refused = set()
    assert metastore.register(None, lake, "bank").renewed == ["b"]
    assert hive.marks["headrace.bank.load"] == "4"


def test_a_load_does_not_wait_for_a_slow_metastore_and_the_next_one_goes_on_behind(hive, lake, monkeypatch):
    # given a metastore that takes half a minute for a table
    clock = SimpleNamespace(now=0.0)
    put = Metastore.put

    def slow(self, *given, **how):
        clock.now += 15
        put(self, *given, **how)

    monkeypatch.setattr(Metastore, "put", slow)
    monkeypatch.setattr(metastore, "monotonic", lambda: clock.now)
    # when
    with pytest.raises(NotConnected, match="slow: 2 tables in 40 s"):
        metastore.register(None, lake, "bank", within=40)
    assert not hive.marks
    # then
    assert metastore.register(None, lake, "bank", within=40).renewed == ["c"]
