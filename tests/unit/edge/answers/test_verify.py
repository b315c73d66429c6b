"""What a policy keeps back is not read for a verification."""

import msgspec

from edge.answers.handlers import of_policy
from headrace.configuration.edge import EdgeFile
from headrace.verify.canonical import SourceType
from headrace.verify.comparison import SourceTable


def left(policy, *tables):
    given = {
        "source": {"name": "a/b", "postgresql": {"host": "h", "database": "d", "user": "u"}},
        "interconnect": {"url": "amqp://h:1"},
        "state": {"folder": "state"},
        "policy": policy,
    }
    return {str(each): each for each in of_policy(msgspec.convert(given, EdgeFile))(list(tables))}


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
    found = left(policy, table("people", "id", "name", "salary"), table("secrets", "id"), table("others", "id"))

    assert set(found) == {"public.people", "public.others"}
    assert list(found["public.people"].columns) == ["id"]
    assert found["public.people"].treated == {"name": "mask", "salary": "exclude"}
    assert (list(found["public.others"].columns), found["public.others"].treated) == (["id"], {})


def test_a_table_that_a_rule_cannot_apply_to_is_not_captured():
    """S11."""
    policy = {"columns": [{"columns": ["*.*.id"], "action": "mask"}]}
    found = left(policy, table("people", "id", "name"))["public.people"]

    assert (found.captured, list(found.columns), found.key) == (False, [], ())


def test_a_partition_keeps_back_what_the_table_keeps_back_that_it_is_a_partition_of():
    policy = {"exclude_tables": ["public.logs"], "columns": [{"columns": ["public.people.name"], "action": "mask"}]}
    found = left(
        policy,
        table("people_1", "id", "name", partition_of=["public.people"]),
        table("logs_1", "id", partition_of=["public.logs"]),
    )

    assert set(found) == {"public.people_1"}
    assert found["public.people_1"].treated == {"name": "as in public.people"}


def test_tables_that_are_not_included_do_not_leave():
    assert set(left({"include_tables": ["public.a*"]}, table("a1", "id"), table("b", "id"))) == {"public.a1"}
