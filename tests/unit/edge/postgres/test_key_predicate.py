"""Keys of records as literals: nothing in them ends a literal, and what cannot be a key's value is refused."""

import pytest

from edge.postgres.key_order import literal
from edge.postgres.snapshot_reader import _text
from headrace.errors import NeedsOperator


@pytest.mark.parametrize(
    ("value", "base", "quoted"),
    [
        (7, "bigint", "'7'"),
        (True, "boolean", "'true'"),
        (1e300, "double precision", "'1e+300'"),
        ("it's", "text", "'it''s'"),
        ("a\\'; drop table t; --", "text", "E'a\\\\''; drop table t; --'"),
        ("AP8=", "bytea", "E'\\\\x00ff'"),
        ("AP8=", "text", "'AP8='"),
    ],
)
def test_a_value_is_between_quotes(value, base, quoted):
    assert literal(_text(value, base, "s.t")) == quoted


@pytest.mark.parametrize(
    ("value", "base"), [(None, "text"), ({"scale": 2}, "numeric"), ([], "text"), ("?", "bytea"), ("\0", "text")]
)
def test_what_no_key_holds_is_refused_without_showing_it(value, base):
    with pytest.raises(NeedsOperator, match=r"identify the rows of s\.t"):
        _text(value, base, "s.t")
