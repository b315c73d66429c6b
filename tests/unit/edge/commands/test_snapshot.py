"""The names of tables as a person gives them to `headrace edge snapshot`."""

import pytest

from edge.commands.snapshot import unquoted


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
