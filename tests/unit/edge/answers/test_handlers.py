"""What an edge answers to each kind: the data that the command in the region prints, its exit code, and nothing kept back by
policy."""

import msgspec
import pytest

from edge.answers.handlers import EdgeService, policy_filter, request_service
from edge.observability.figures import Figures
from headrace.configuration.edge import EdgeFile
from headrace.findings import Finding
from headrace.requests import content_of, encode, new_request
from headrace.status.answer import Answer
from headrace.verify import comparison, contract
from headrace.verify.canonical import SilverType, SourceType
from headrace.verify.comparison import SourceTable
from tests.rules.waiting import eventually

SOURCE = "jakarta/bank"


def config(folder, **requests):
    given = {
        "source": {
            "name": SOURCE,
            "postgresql": {"host": "127.0.0.1", "port": 1, "database": "x", "user": "x", "connect_timeout": 2},
        },
        "interconnect": {"url": "amqp://127.0.0.1:1"},
        "state": {"folder": str(folder)},
        "requests": requests,
    }
    return msgspec.convert(given, EdgeFile)


def never():
    """Stand in for the edge's checkpoint where no request needs it."""
    raise AssertionError("the checkpoint was read")


@pytest.fixture
def answer(tmp_path):
    service = request_service(config(tmp_path), EdgeService(SOURCE, Figures(), lambda: "a/b/c"), never)

    def ask(kind, **arguments):
        service.receive(encode(new_request(SOURCE, kind, "ann", 60, arguments)))
        text = ""
        while True:
            number, _, part, _ = eventually(service.answers.take)
            service.answers.settled(number)
            text += part.content
            if part.last:
                return part.outcome, content_of(text)

    yield ask
    service.stop(30)


def test_the_status_is_that_of_the_running_edge(answer):
    outcome, content = answer("status")
    result = msgspec.convert(content.data, Answer)
    assert (outcome, content.exit_code) == ("done", 1)
    assert (result.part, result.running, result.ready, result.address) == ("edge", True, False, "the interconnect")
    assert [(each.source, each.position) for each in result.sources] == [(SOURCE, "a/b/c")]


def test_the_doctor_finds_what_is_wrong_with_a_database_that_is_away(answer):
    outcome, content = answer("doctor")
    findings = [Finding(**each) for each in content.data]
    assert (outcome, content.exit_code) == ("done", 3)
    assert ("connection", "wrong") in [(each.check, each.level) for each in findings]


def test_a_kind_that_is_not_listed_is_refused(answer):
    assert answer("snapshot")[0] == "refused"


def test_a_verification_of_a_database_that_is_away_fails_with_who_must_act(answer):
    outcome, content = answer("verify", **contract.encode_arguments("a" * 16, 0, contract.Open()))
    reply = msgspec.convert(content.data, contract.Reply)
    assert (outcome, reply.state, reply.failure.kind) == ("done", "failed", "NotConnected")
    assert f"{SOURCE}: 127.0.0.1:1/x cannot be reached" in reply.failure.message
    assert "the edge's file" in reply.failure.hint
    # The session is over; what comes again has the same answer.
    outcome, content = answer("verify", **contract.encode_arguments("a" * 16, 1, contract.Tables()))
    assert "has no such verification any more" in content.data["failure"]["message"]
    outcome, content = answer("verify", **contract.encode_arguments("a" * 16, 0, None))
    assert msgspec.convert(content.data, contract.Reply) == reply


def digests(span=None, cells=1, within=(), wanted=None, scale=0, name="a"):
    kind = SilverType(name="decimal", scale=scale)
    table = contract.ComparedTable(name="a.b", columns=[contract.ComparedColumn(name=name, in_silver=kind)])
    grid = comparison.Grid(span=span or comparison.hashes(), cells=cells, within=within)
    return contract.encode_arguments("a" * 16, 1, contract.Digests(table=table, grid=grid, cells=wanted))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "missing required field"),
        ({"version": 2, "session": "a" * 16, "step": 0}, "version 2 of the verification format"),
        ({"version": 1, "session": "x; drop", "step": 0}, "session"),
        ({"version": 1, "session": "a" * 16, "step": 0, "what": {"do": "sql", "text": "select"}}, "Invalid value"),
        (
            contract.encode_arguments(
                "a" * 16,
                1,
                contract.Rows(
                    table=contract.ComparedTable(name="a.b"),
                    grid=comparison.grid(comparison.hashes(), 1),
                    cells=[0],
                    key_hashes=["' or ''='"],
                ),
            ),
            "key_hashes",
        ),
        (
            contract.encode_arguments(
                "a" * 16,
                1,
                contract.Digests(
                    table=contract.ComparedTable(name="a.b"), grid=comparison.Grid(span=comparison.hashes(), cells=0)
                ),
            ),
            "Expected `int` >= 1",
        ),
        (digests(span=comparison.Span(by="key", low=5, high=5)), "its ranges are none"),
        # S8: what is asked for is bounded, since the edge makes statements and texts of it.
        (digests(cells=1 << 60), "Expected `int` <= 4096"),
        (digests(within=(comparison.Span(by="key", low=0, high=1 << 80),)), "its ranges are none"),
        (digests(within=(comparison.hashes(),) * 100), "Expected `array` of length <= 4"),
        (digests(wanted=[1]), "its ranges are none"),
        (digests(wanted=[0] * 5000), "Expected `array` of length <= 4096"),
        (digests(scale=200_000_000), "Expected `int` <= 38"),
        (digests(name="x" * 1000), "Expected `str` of length <= 256"),
    ],
)
def test_a_forged_verification_is_refused(answer, arguments, words):
    outcome, content = answer("verify", **arguments)

    assert outcome == "failed"
    assert words in content.message


def test_an_edge_whose_file_allows_nothing_receives_nothing(tmp_path):
    assert request_service(config(tmp_path, allow=[]), EdgeService(SOURCE, Figures(), str), never) is None


def left(policy, *tables):
    given = {
        "source": {"name": "a/b", "postgresql": {"host": "h", "database": "d", "user": "u"}},
        "interconnect": {"url": "amqp://h:1"},
        "state": {"folder": "state"},
        "policy": policy,
    }
    return {str(each): each for each in policy_filter(msgspec.convert(given, EdgeFile))(list(tables))}


def table(name, *columns, partition_of=()):
    kinds = dict.fromkeys(columns, SourceType(name="text"))
    return SourceTable(schema="public", name=name, columns=kinds, key=("id",), partition_of=frozenset(partition_of))


def test_tables_and_columns_that_do_not_leave_are_left_out_and_named_with_what_is_done_to_them():
    policy = {
        "exclude_tables": ["public.secrets"],
        "columns": [
            {"columns": ["public.people.name"], "action": "mask"},
            {"columns": ["*.*.salary"], "action": "exclude"},
        ],
    }
    result = left(policy, table("people", "id", "name", "salary"), table("secrets", "id"), table("others", "id"))

    assert set(result) == {"public.people", "public.others"}
    assert list(result["public.people"].columns) == ["id"]
    assert result["public.people"].treated == {"name": "mask", "salary": "exclude"}
    assert (list(result["public.others"].columns), result["public.others"].treated) == (["id"], {})


def test_a_table_that_a_rule_cannot_apply_to_is_not_captured():
    """S11."""
    policy = {"columns": [{"columns": ["*.*.id"], "action": "mask"}]}
    result = left(policy, table("people", "id", "name"))["public.people"]

    assert (result.captured, list(result.columns), result.key) == (False, [], ())


def test_a_partition_keeps_back_what_the_table_keeps_back_that_it_is_a_partition_of():
    policy = {"exclude_tables": ["public.logs"], "columns": [{"columns": ["public.people.name"], "action": "mask"}]}
    result = left(
        policy,
        table("people_1", "id", "name", partition_of=["public.people"]),
        table("logs_1", "id", partition_of=["public.logs"]),
    )

    assert set(result) == {"public.people_1"}
    assert result["public.people_1"].treated == {"name": "as in public.people"}


def test_tables_that_are_not_included_do_not_leave():
    assert set(left({"include_tables": ["public.a*"]}, table("a1", "id"), table("b", "id"))) == {"public.a1"}
