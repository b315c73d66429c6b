"""L8, T1, T7, L28: every table has a name of its own that SQL can use, whatever its source calls it, and keeps it."""

import re
from itertools import permutations

import pytest

from headrace.lake.own_tables import bronze_name
from spark_jobs.state import names, published

SAME = [
    ("bank", "sales.orders"),
    ("bank", "public.sales_orders"),
    ("bank", "public.Orders"),
    ("bank", "public.orders"),
    ("bank", "a.b_c"),
    ("bank", "A.b_c"),
    ("bank", "public.a_b_c"),
]
ODD = [
    *("public.special\"[`]$'", "public.orders.renamed", "own.заказы", "own.обзоры", "public./../../x", "public.a b"),
    *("public.a-b", "public.a.b", "public.généraux", "a.b.c", "public.", 'public."', "public.'", "public." + "ы" * 200),
]


def test_plain_names_stay_as_they_are():
    places_ = [("bank", "public.accounts"), ("bank", "audit.log"), ("bank", "public.Branches"), ("bank", "public.1st")]
    result = names.assign({}, places_)
    assert [result[place] for place in places_] == ["accounts", "audit_log", "Branches", "1st"]


def test_tables_that_collide_get_names_of_their_own():
    result = names.assign({}, SAME)
    assert len({name.casefold() for name in result.values()}) == len(SAME)
    # The table that is called so keeps the short name, whatever the order.
    assert result["bank", "public.sales_orders"] == "sales_orders"
    assert re.fullmatch(r"sales_orders_[0-9a-f]{8}", result["bank", "sales.orders"])
    assert result["bank", "public.a_b_c"] == "a_b_c"


@pytest.mark.parametrize("given", [SAME[:2], SAME[2:4], SAME[4:], [("bank", ODD[0]), ("bank", ODD[1])]])
def test_the_order_in_which_tables_of_a_load_are_given_does_not_matter(given):
    for order in permutations(given):
        assert names.assign({}, order) == names.assign({}, given)


def test_a_name_once_recorded_stays_when_others_come():
    first = names.assign({}, [("bank", "sales.orders"), ("bank", "public.accounts")])
    later = names.assign(first, [*first, *SAME, ("shop", "public.accounts"), ("shop", "sales.orders")])
    assert later["bank", "sales.orders"] == "sales_orders"
    assert later["bank", "public.sales_orders"] != "sales_orders"
    assert later["bank", "public.accounts"] == "accounts"
    assert later["shop", "public.accounts"] == "shop_accounts"
    assert len({name.casefold() for name in later.values()}) == len(later)


def test_names_of_an_earlier_release_stay():
    """Where two streams had a table of one name both had the stream in front."""
    result = names.assign({}, [("bank", "public.accounts"), ("shop", "public.accounts"), ("shop", "public.sales")])
    assert list(result.values()) == ["bank_accounts", "shop_accounts", "sales"]


def test_every_odd_name_becomes_one_that_sql_takes():
    result = names.assign({}, [("bank", name) for name in ODD])
    assert all(re.fullmatch(r"[A-Za-z0-9_]{1,128}", name) for name in result.values())
    assert len({name.casefold() for name in result.values()}) == len(ODD)
    assert result["bank", "public.orders.renamed"].startswith("orders_renamed_")
    assert result["bank", "public.généraux"].startswith("generaux_")


def test_a_name_that_looks_like_anothers_suffix_is_still_unique():
    taken = names.assign({}, SAME[:2])["bank", "sales.orders"]
    given = [("bank", f"public.{taken}"), *SAME[:2]]
    assert len({name.casefold() for name in names.assign({}, given).values()}) == len(given)
    assert len({n.casefold() for n in names.assign({("bank", f"public.{taken}"): taken}, given).values()}) == 3


def test_streams_have_names_that_sql_takes():
    assert bronze_name("bank", ["bank", "my-bank"]) == "bank"
    assert bronze_name("my-bank", ["bank", "my-bank"]) == "my_bank"
    assert bronze_name("my-bank", ["my_bank", "my-bank"]) != "my_bank"
    result = names.assign({}, [("my-bank", "public.accounts"), ("shop", "public.accounts")])
    assert result["my-bank", "public.accounts"] == "my_bank_accounts"


@pytest.mark.parametrize("table", ["public.accounts", "public.a b", "own.заказы", "public.special\"[`]$'", "a.b.c"])
def test_folders_that_stay_inside_the_lake_keep_their_names(table):
    assert published.folder(table) == table


def test_no_folder_leaves_the_lake():
    """L28: a name with a slash was taken as it is, so that `/../../x` led out of the lake."""
    odd = ["public./../../x", "public.a/b", "../x.y", "public.a\\b", "public.a\n", "public." + "ы" * 200, ".", ".."]
    tables = [published.folder(table) for table in odd]
    assert len(set(tables)) == len(odd)
    for name in tables:
        assert not set(name) & set("/\\\n")
        assert name not in {".", ".."}
        assert len(name.encode()) <= 255
