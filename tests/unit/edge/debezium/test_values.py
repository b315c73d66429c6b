"""Values of Connect schemas as text and numbers."""

import pytest

from edge.debezium.values import converter


@pytest.mark.parametrize(
    ("schema", "type_name", "value", "wanted"),
    [
        ({"name": "io.debezium.data.Bits", "parameters": {"length": "3"}}, "bit", "BQ==", "101"),
        ({"name": "io.debezium.data.Bits", "parameters": {"length": "10"}}, "bit", "BQE=", "0100000101"),
        ({"type": "boolean"}, "bit", True, "1"),
        ({"type": "boolean"}, "bool", True, True),
        ({"type": "string"}, "numeric", "12.50", "12.50"),
        ({"type": "double"}, "float8", 1.5, 1.5),
        ({"type": "array", "items": {"type": "int32"}}, "_int4", [1, None, 3], "{1,NULL,3}"),
        (
            {"type": "array", "items": {"type": "string"}},
            "_text",
            ["a", None, "b c", "", 'q"\\', "null", "é,"],
            '{a,NULL,"b c","","q\\"\\\\","null","é,"}',
        ),
        ({"type": "array", "items": {"type": "boolean"}}, "_bool", [True, False], "{t,f}"),
        ({"type": "struct"}, "point", {"x": 1.0}, '{"x":1.0}'),
    ],
)
def test_a_value_is_written_as_a_postgresql_edge_writes_it(schema, type_name, value, wanted):
    assert converter(schema, type_name)(value) == wanted
