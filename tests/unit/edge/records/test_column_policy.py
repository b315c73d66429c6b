"""The policy: which rule a column meets, what it does to values, and what it refuses."""

import hashlib
import hmac

import pytest

from edge.records.column_policy import LeftOut, Policy, PolicyTable, unused_words
from headrace.configuration.edge import ColumnRule
from headrace.configuration.edge import Policy as Section
from headrace.configuration.secret import Secret
from headrace.errors import ConfigurationError

KEY = "0123456789abcdef"


@pytest.fixture(autouse=True)
def hash_key(monkeypatch):
    monkeypatch.setenv("HASH_KEY", KEY)


def make_policy(*rules, **tables):
    return Policy(Section(columns=list(rules), hash_key=Secret("env:HASH_KEY"), **tables))


def rule(action, *columns, **options):
    return ColumnRule(action=action, columns=list(columns), **options)


def test_without_rules_everything_leaves():
    everything = Policy(Section())
    assert everything.admits("public", "orders")
    assert everything.treatments("public", "orders", ["id", "note"], ["id"]) == [None, None]


@pytest.mark.parametrize(
    ("table", "leaves"),
    [("sales.orders", True), ("sales.orders_old", False), ("audit.log", False), ("salesx.orders", False)],
)
def test_tables_are_included_and_excluded_by_pattern(table, leaves):
    assert make_policy(include_tables=["sales.*"], exclude_tables=["*.*_old"]).admits(*table.split(".")) is leaves


def test_a_partition_has_the_rules_of_what_it_is_a_partition_of_and_of_any_table_where_that_is_not_known():
    """G4: partitions are published under their own names."""
    rules = make_policy(
        rule("hash", "public.people.email"), exclude_tables=["public.salaries"], include_tables=["public.*"]
    )
    above = [("public", "people")]
    (email,) = rules.treatments("archive", "people_1", ["email"], [], above)
    assert email is not None
    assert email.action == "hash"
    assert rules.admits("archive", "people_1", above)
    assert not rules.admits("archive", "people_1")
    assert not rules.admits("public", "salaries_1", [("public", "salaries")])
    assert not rules.admits_name("public.salaries_1", ["public.salaries"])
    # Closed where nothing is known.
    assert not rules.admits("public", "salaries_1", None)
    assert make_policy(rule("hash", "public.people.email")).admits("public", "people_1", None)
    (email, name) = rules.treatments("public", "people_1", ["email", "name"], [], None)
    assert (email is None, name is None) == (False, True)


def test_star_does_not_reach_over_a_dot():
    (email, _) = make_policy(rule("mask", "sales.*.email")).treatments("sales", "people", ["email", "name"], [])
    assert email is not None
    assert make_policy(rule("mask", "sales.*.email")).treatments("other", "sales", ["email"], []) == [None]


def test_first_rule_that_matches_counts():
    both = make_policy(rule("truncate", "*.*.phone", characters=3), rule("mask", "*.*.*", mask="-"))
    phone, name = both.treatments("public", "people", ["phone", "name"], [])
    assert (phone.action, phone.hide(b"0812345")) == ("truncate", b"081")
    assert (name.action, name.hide(b"Ani")) == ("mask", b"-")


def test_hash_is_hmac_sha_256_of_the_text_in_any_column():
    first, second = make_policy(rule("hash", "*.*.*")).treatments("public", "people", ["id", "parent"], ["id"])
    expected = hmac.new(KEY.encode(), b"42", hashlib.sha256).hexdigest().encode()
    assert first.hide(b"42") == second.hide(b"42") == expected


def test_truncation_counts_characters_not_bytes():
    (name,) = make_policy(rule("truncate", "*.*.name", characters=2)).treatments("public", "people", ["name"], [])
    assert name.hide("Žofie".encode()) == "Žo".encode()


@pytest.mark.parametrize(
    "refused", [rule("mask", "*.*.id"), rule("exclude", "*.*.id"), rule("truncate", "*.*.id", characters=1)]
)
def test_a_key_column_can_only_be_hashed(refused):
    """S11: it was an error of the whole edge's file, which any new table could bring about."""
    left_out = {}
    made = Policy(Section(columns=[refused]), left_out=left_out)
    with pytest.raises(LeftOut, match=r"public\.people is left out: \[policy\] would \w+ id, a column of its key"):
        made.treatments("public", "people", ["id"], ["id"])
    assert list(left_out) == ["public.people"]
    # Once the table has another key, it leaves.
    made.treatments("public", "people", ["id", "number"], ["number"])
    assert left_out == {}


def test_a_short_hash_key_is_refused_without_being_shown(monkeypatch):
    monkeypatch.setenv("HASH_KEY", "tooshort")
    with pytest.raises(ConfigurationError, match="8 bytes") as caught:
        make_policy(rule("hash", "*.*.*"))
    assert "tooshort" not in caught.value.message + caught.value.hint


def test_hashing_needs_a_key_and_truncating_a_length():
    with pytest.raises(ValueError, match="hash_key"):
        Section(columns=[rule("hash", "*.*.*")])
    with pytest.raises(ValueError, match="characters"):
        rule("truncate", "*.*.*")


def test_dots_within_names_are_parts_of_them():
    """E11."""
    policy = make_policy(rule("mask", "sales.*.e*"), include_tables=["sales.*"], exclude_tables=["sales.*_old"])

    assert policy.admits("sales", "a.b")
    assert not policy.admits("sales", "a.b_old")
    assert not policy.admits("sales.a", "b")
    assert [it and it.action for it in policy.treatments("sales", "a.b", ["e.mail", "n.e"], [])] == ["mask", None]


def test_a_joined_name_that_can_be_read_in_two_ways_leaves_only_if_it_does_in_both():
    """E11: such names come from the command line and from dead letters."""
    policy = make_policy(rule("hash", "sales.*.id"), include_tables=["sales.*"])

    assert policy.admits_name("sales.orders")
    assert not policy.admits_name("sales.a.b")
    assert policy.treats_name("sales.a.b", ["id"])
    assert not policy.treats_name("other.a.b", ["id"])


def test_a_name_in_another_case_is_no_way_out_where_the_database_ignores_case():
    """S10: `CHANGE email Email` of MySQL began the leak."""
    section = Section(
        columns=[rule("mask", "shop.customers.email")], include_tables=["shop.*"], exclude_tables=["shop.Salaries"]
    )
    mysql, postgresql = Policy(section, any_case=True), Policy(section)

    for table, column in (("customers", "Email"), ("Customers", "EMAIL"), ("customers", "émail")):
        (treatment,) = mysql.treatments("shop", table, [column], [])
        assert treatment.action == "mask"
        assert postgresql.treatments("shop", table, [column], []) == [None]
    assert not mysql.admits("shop", "salaries")
    assert not mysql.admits("shop", "SALARIES")
    assert postgresql.admits("shop", "salaries")
    # What is to leave is named as it is.
    assert not mysql.admits("Shop", "orders")


def test_rules_without_effect_are_named_as_the_file_has_them():
    """S10: a rule with a slip matched nothing, and nothing reported it."""
    policy = make_policy(
        rule("mask", "shop.customers.emial", "*.*.phone", "shop.people.name"),
        include_tables=["shop.*", "audit.*"],
        exclude_tables=["shop.logs"],
    )
    tables = [PolicyTable("shop", "customers", ["id", "email", "phone"]), PolicyTable("shop", "orders", ["name"])]

    assert policy.unused(tables) == ["audit.*", "shop.logs", "shop.customers.emial", "shop.people.name"]
    assert unused_words(policy.unused(tables)).endswith(
        "column: audit.*, shop.logs, shop.customers.emial, shop.people.name"
    )
    assert unused_words([]) == ""
    assert unused_words([f"a.b{number}" for number in range(14)]).endswith(" and 4 more")
