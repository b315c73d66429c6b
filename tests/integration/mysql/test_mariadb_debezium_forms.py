"""`[records]` decimal, time, binary, types and truncates of a MariaDB source: streamed and copied rows in Debezium's forms."""

import base64

import pytest

from edge.engine_registry import engine_of
from headrace.errors import NeedsOperator
from tests.edge.fix_edge import arrive
from tests.integration.edge.snapshots import copy, records

FORMS = """
[records]
decimal = "precise"
time = "adaptive"
binary = "hex"
types = "debezium"
truncates = false
"""
COLUMNS = (
    "n decimal(7,2), whole decimal(20,0), da date, must date not null, dt datetime, dt3 datetime(3), dt6 datetime(6), ti time, "
    "ti6 time(6), ts timestamp(3) null, vb varbinary(9), bl blob, "
    "b1 bit, b10 bit(10), y year, e enum('a', 'b', 'it''s \\\\ \\n é\"') character set latin1, "
    "s set('x', 'y'), j json, g geometry"
)
ROWS = [
    (
        "12.34, -1, '2026-01-31', '2026-01-31', '2026-01-31 09:15:00', '1969-12-31 23:59:59.250', '2026-01-31 09:15:00.000001', "
        "'-838:59:59', '26:00:00.000001', '2026-01-31 09:15:00.5', x'00ff', x'fb', "
        "1, 513, 2026, 'b', 'x,y', '[1]', st_geomfromtext('POINT(0 0)', 4326)"
    ),
    (
        "-0.01, 99999999999999999999, 0, 0, 0, '2026-00-00', '1970-01-01', '00:00:00', '-00:00:00.5', null, x'', null, "
        "null, 0, null, null, '', null, null"
    ),
]
#: A point at the origin.
WKB = base64.b64encode(b"\1\1\0\0\0" + bytes(16)).decode()
WANTED = [
    {
        "n": 1234, "whole": -1, "da": 20484, "must": 20484, "dt": 1769850900000, "dt3": -750, "dt6": 1769850900000001,
        "ti": -3020399000000, "ti6": 93600000001, "ts": "2026-01-31T09:15:00.500Z", "vb": "00ff", "bl": "fb",
        "b1": True, "b10": "AQI=", "y": 2026, "e": "b", "s": "x,y", "j": "[1]", "g": {"wkb": WKB, "srid": 4326},
    },
    {
        "n": -1, "whole": 10**20 - 1, "da": None, "must": 0, "dt": None, "dt3": None, "dt6": 0,
        "ti": 0, "ti6": -500000, "ts": None, "vb": "", "bl": None,
        "b1": None, "b10": "AAA=", "y": None, "e": None, "s": "", "j": None, "g": None,
    },
]  # fmt: skip
CONNECT, TIME, DATA = "org.apache.kafka.connect.data.", "io.debezium.time.", "io.debezium.data."
NAMES = {
    "n": f"{CONNECT}Decimal", "whole": f"{CONNECT}Decimal", "da": f"{TIME}Date", "must": f"{TIME}Date", "dt": f"{TIME}Timestamp",
    "dt3": f"{TIME}Timestamp", "dt6": f"{TIME}MicroTimestamp", "ti": f"{TIME}MicroTime", "ti6": f"{TIME}MicroTime",
    "vb": "hex", "bl": "hex",
    "ts": f"{TIME}ZonedTimestamp", "b1": "boolean", "b10": f"{DATA}Bits", "y": f"{TIME}Year", "e": f"{DATA}Enum",
    "s": f"{DATA}EnumSet", "g": f"{DATA}geometry.Geometry",
}  # fmt: skip


@pytest.fixture
def forms(maria):
    maria.execute("set time_zone = '+00:00', sql_mode = ''")
    maria.execute(f"create table forms (id decimal(5,1) primary key, {COLUMNS})")
    return maria


def numbers(row):
    """Return a row with its decimals as their unscaled numbers."""
    return {
        name: int.from_bytes(base64.b64decode(value), "big", signed=True) if name in {"id", "n", "whole"} else value
        for name, value in row.items()
    }


def test_streamed_and_copied_rows_are_in_the_same_forms(maria_edges, forms, interconnect):
    edge = maria_edges(forms, interconnect.url, rest=FORMS)
    edge.init()
    with edge.running():
        for number, row in enumerate(ROWS):
            forms.execute(f"insert into forms values ({number}, {row})")
        arrive(interconnect, len(ROWS))
        copy(edge, f"{forms.name}.forms")

    wanted = [{"id": 10 * number, **row} for number, row in enumerate(WANTED)]
    for op in ("c", "r"):
        result = records(interconnect, "forms", op)
        assert [numbers(value["after"]) for _, value in result] == wanted
    schema = next(value for _, _, value in interconnect.records if value and "tableChanges" in value)
    columns = schema["tableChanges"][0]["table"]["columns"]
    members = {column["name"]: column["enumValues"] for column in columns if "enumValues" in column}
    assert members == {"e": ["a", "b", "it's \\ \n é\""], "s": ["x", "y"]}
    # The log and the catalog describe the table alike: the marks of the copy have the same columns.
    described = [value["tableChanges"][0] for _, _, value in interconnect.records if value and "tableChanges" in value]
    assert len(described) == 3
    assert all(each == schema["tableChanges"][0] for each in described)
    assert {it["name"]: it["form"] for it in columns if "form" in it} == {"id": f"{CONNECT}Decimal", **NAMES}


def test_truncates_are_left_out_where_they_are_not_wanted(maria_edges, forms, interconnect):
    edge = maria_edges(forms, interconnect.url, rest=FORMS)
    edge.init()
    with edge.running():
        forms.execute(f"insert into forms values (0, {ROWS[0]})")
        forms.execute("truncate table forms")
        forms.execute(f"insert into forms values (1, {ROWS[1]})")
        arrive(interconnect, 2)

    assert [change["op"] for change in interconnect.changes] == ["c", "c"]


def test_rows_do_not_come_again_by_keys_in_such_a_form(maria_edges, forms, interconnect):
    edge = maria_edges(forms, interconnect.url, rest=FORMS)
    with pytest.raises(NeedsOperator, match="'id' is written in one of Debezium's forms"):
        engine_of(edge.config).condition(f"{forms.name}.forms", [{"id": "CgA="}])
