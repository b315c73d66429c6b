"""The names of tables as a person gives them to `headrace edge snapshot`."""

import json

import pytest

from edge.commands.snapshot import choose, parse, requests, unquoted
from headrace.configuration.edge import EdgeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError

FILE = """
source.name = "jakarta/bank"
source.postgresql = { host = "h", database = "d", user = "u" }
interconnect.url = "amqp://h"
state.folder = "state"
records.largest_megabytes = 2
"""


class Engine:
    """Says of which keys it was asked."""

    def condition(self, table, keys):
        return f"{table}: {json.dumps(keys)}"


@pytest.fixture
def config(tmp_path):
    def make(more=""):
        path = tmp_path / "edge.toml"
        path.write_text(FILE + more)
        return load(path, EdgeFile)

    return make


def listed(*letters):
    usual = {"source": "jakarta/bank", "table": "s.t", "op": "c", "key": '{"id":1}', "bytes": 1 << 20, "state": "open"}
    return parse(json.dumps([usual | letter for letter in letters]).encode())


def test_open_letters_of_this_source_are_asked_for_by_table_each_key_once(config):
    file = config()
    chosen = choose(listed({}, {"op": "u"}, {"key": '{"id":2}'}, {"table": "s.u", "sha256": "x"}), file)
    assert [(it.tables, it.where) for it in requests(chosen, file, Engine().condition)] == [
        (["s.t"], 's.t: [{"id": 1}, {"id": 2}]'),
        (["s.u"], 's.u: [{"id": 1}]'),
    ]
    assert chosen.left_out == []


def test_many_keys_are_asked_for_in_parts(config):
    file = config()
    chosen = choose(listed(*({"key": f'{{"id":{number}}}'} for number in range(450))), file)
    asked = [json.loads(it.where.removeprefix("s.t: ")) for it in requests(chosen, file, Engine().condition)]
    assert [len(keys) for keys in asked] == [200, 200, 50]
    assert [key["id"] for keys in asked for key in keys] == list(range(450))


def test_what_is_left_is_said_with_the_reason(config):
    letters = listed({"source": "lima/bank"}, {"state": "replaced"}, {"op": "d"}, {"key": None, "table": "s.none"})
    chosen = choose(letters, config())
    assert chosen.keys == {}
    assert chosen.left_out == [
        "1 left: of other sources, for their edges: lima/bank",
        "2 left: replaced since, or a delete's: there is nothing to copy",
        "1 left: without a key, copy with --all or by name: s.none",
    ]


def test_a_list_of_other_sources_is_refused_and_names_them(config):
    with pytest.raises(
        ConfigurationError, match=r"none of these dead letters is of jakarta/bank: they are of lima/bank"
    ):
        choose(listed({"source": "lima/bank"}), config())
    assert choose([], config()).keys == {}


def test_rows_above_the_limit_are_refused_with_the_limit_that_takes_them(config):
    with pytest.raises(ConfigurationError, match=r"1 of these rows are larger") as refused:
        choose(listed({}, {"bytes": (2 << 20) + 1}), config())
    assert "largest_megabytes = 3" in refused.value.hint
    # One that is not going to be copied is none of them.
    assert choose(listed({"bytes": 3 << 20, "state": "replaced"}), config()).keys == {}


def test_a_key_that_the_policy_hashes_tells_no_row(config, monkeypatch):
    monkeypatch.setenv("HASH_KEY", "x" * 32)
    rule = '[policy]\nhash_key = "env:HASH_KEY"\ncolumns = [{ columns = ["s.t.id"], action = "hash" }]\n'
    file = config(rule)
    with pytest.raises(ConfigurationError, match=r"hashes the key of s\.t"):
        requests(choose(listed({}), file), file, Engine().condition)


@pytest.mark.parametrize("data", [b"", b"{}", b"[{}]", b"\xff", b"no dead letters"])
def test_what_is_no_list_is_refused(data):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        parse(data)


@pytest.mark.parametrize("key", ["", "{}", "7", '{"id"'])
def test_a_key_that_is_none_is_refused(config, key):
    with pytest.raises(ConfigurationError, match=r"s\.t has a key that is none"):
        choose(listed({"key": key}), config())


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("public.orders", "public.orders"),
        ('"own"."orders.renamed"', "own.orders.renamed"),
        ('own."a b"', "own.a b"),
        ('"own".orders', "own.orders"),
        ('"own"."say ""x"""', 'own.say "x"'),
        ("own.orders.renamed", "own.orders.renamed"),
        # Quotes that belong to the name itself.
        ("public.special\"[`]$'", "public.special\"[`]$'"),
    ],
)
def test_a_name_in_quotes_is_the_name_without_them(given, name):
    """T11: `snapshot '"own"."orders.renamed"'` was accepted and failed later."""
    assert unquoted(given) == name
