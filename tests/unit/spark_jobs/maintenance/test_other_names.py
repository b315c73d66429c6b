"""Which keys an erasure gives to the other names of a renamed table."""

from datetime import UTC, datetime

import pytest

from headrace.errors import ConfigurationError
from spark_jobs.maintenance import related_rows
from spark_jobs.state.published_rows import Dropped, Published, Table

FORMER, PRESENT = "public.accounts", "public.clients"


def described(name, key):
    return Table(table=name, version=1, schemas={"a/b": key})


@pytest.fixture
def renamed(monkeypatch):
    monkeypatch.setattr(related_rows, "key_columns", lambda table: table.schemas["a/b"].split())

    def state(present, former):
        drop = Dropped(at=datetime.now(UTC), table=described(FORMER, former), renamed_to=PRESENT)
        return Published(stream="bank", tables={PRESENT: described(PRESENT, present)}, dropped={FORMER: drop})

    return state


@pytest.mark.parametrize(
    ("present", "former", "keys", "given"),
    [
        ("id", "id", ["7"], ["7"]),
        ("tenant id", "id tenant", ['["acme", 7]'], ['["7", "acme"]']),
        ("tenant id", "id tenant", {"a/b": ['["é", "x y"]']}, {"a/b": ['["x y", "é"]']}),
        ("id", "customer_no", ["7"], None),
        ("id", "id tenant", ["7"], None),
    ],
)
def test_keys_have_the_order_of_the_other_names_columns_or_are_not_given(renamed, present, former, keys, given):
    state = renamed(present, former)
    assert list(related_rows._for_other_names(state, PRESENT, keys)) == [(FORMER, given)]


def test_a_key_that_is_no_list_of_the_columns_is_an_error(renamed):
    with pytest.raises(ConfigurationError, match="no JSON array of 2 values"):
        list(related_rows._for_other_names(renamed("tenant id", "id tenant"), PRESENT, ["7"]))
