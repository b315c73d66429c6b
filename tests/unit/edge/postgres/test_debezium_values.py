"""Values in Debezium's forms, from the database's text (facts of its connector, 3.6)."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.postgres.debezium_types import debezium_type
from edge.postgres.values import OIDS, array
from edge.postgres.values import text as as_text
from headrace.configuration.edge import Records


def form(name, modifier=-1, **records):
    known = OIDS.get(name)
    result = debezium_type(known or 20000, modifier, Records(**({"profile": "debezium"} | records)), name)
    assert result is not None
    return result


def written(name, text, modifier=-1, **records):
    convert = form(name, modifier, **records).convert
    return json.loads(convert(text.encode()))


@pytest.mark.parametrize(
    ("name", "text", "modifier", "records", "expected", "called"),
    [
        ("date", "2026-01-31", -1, {"time": "isostring"}, "2026-01-31Z", "io.debezium.time.IsoDate"),
        ("date", "0044-03-15 BC", -1, {"time": "isostring"}, "-0043-03-15Z", "io.debezium.time.IsoDate"),
        ("date", "12026-01-31", -1, {"time": "isostring"}, "+12026-01-31Z", "io.debezium.time.IsoDate"),
        ("time", "09:15:00.25", -1, {"time": "isostring"}, "09:15:00.25Z", "io.debezium.time.IsoTime"),
        ("time", "24:00:00", -1, {"time": "isostring"}, "00:00:00Z", "io.debezium.time.IsoTime"),
        ("timestamp", "2026-01-31 09:15:00.25", -1, {"time": "isostring"}, "2026-01-31T09:15:00.25Z",
         "io.debezium.time.IsoTimestamp"),
        ("time", "09:15:00.25", 3, {"time": "adaptive"}, 33_300_250, "io.debezium.time.Time"),
        ("time", "09:15:00.25", 3, {"time": "adaptive_time_microseconds"}, 33_300_250_000, "io.debezium.time.MicroTime"),
        ("timestamp", "1970-01-01 00:00:01", 3, {"time": "adaptive_time_microseconds"}, 1000, "io.debezium.time.Timestamp"),
        ("timestamp", "1970-01-01 00:00:01", 3, {"time": "microseconds"}, 1_000_000, "io.debezium.time.MicroTimestamp"),
        ("timestamp", "1970-01-01 00:00:01", -1, {"time": "nanoseconds"}, 1_000_000_000, "io.debezium.time.NanoTimestamp"),
        ("timestamp", "infinity", -1, {"time": "nanoseconds"}, 2**63 - 1, "io.debezium.time.NanoTimestamp"),
        ("time", "00:00:01", -1, {"time": "nanoseconds"}, 1_000_000_000, "io.debezium.time.NanoTime"),
        ("time", "00:00:01", -1, {"time": "connect"}, 1000, "org.apache.kafka.connect.data.Time"),
        ("timestamptz", "2026-01-31 09:15:00.25+00", -1, {}, "2026-01-31T09:15:00.250000Z",
         "io.debezium.time.ZonedTimestamp"),
        ("timestamptz", "2026-01-31 09:15:00+00", 0, {}, "2026-01-31T09:15:00Z", "io.debezium.time.ZonedTimestamp"),
        ("timestamptz", "0044-03-15 12:00:00.5+00 BC", 3, {}, "-0043-03-15T12:00:00.500Z", "io.debezium.time.ZonedTimestamp"),
        ("timestamptz", "-infinity", -1, {}, "-infinity", "io.debezium.time.ZonedTimestamp"),
        ("timetz", "01:30:00.5+05:30", -1, {}, "20:00:00.5Z", "io.debezium.time.ZonedTime"),
        ("timetz", "23:30:00-02", -1, {}, "01:30:00Z", "io.debezium.time.ZonedTime"),
        ("interval", "1 year 2 mons 3 days 04:05:06.789", -1, {"interval": "string"}, "P1Y2M3DT4H5M6.789S",
         "io.debezium.time.Interval"),
        ("interval", "-1 mons +3 days -04:05:06", -1, {"interval": "string"}, "P0Y-1M3DT-4H-5M-6S", "io.debezium.time.Interval"),
        ("interval", "00:00:00", -1, {"interval": "string"}, "P0Y0M0DT0H0M0S", "io.debezium.time.Interval"),
        ("interval", "1 mon 00:00:01.5", -1, {}, 2_629_801_500_000, "io.debezium.time.MicroDuration"),
        ("interval", "-1 days", -1, {}, -86_400_000_000, "io.debezium.time.MicroDuration"),
        ("money", "-$1,234.50", -1, {}, "/h3G", "org.apache.kafka.connect.data.Decimal"),
        ("money", "1.234,50 €", -1, {"decimal": "string"}, "1234.50", "string"),
        ("money", "$0.07", -1, {"decimal": "double"}, 0.07, "double"),
        ("bit", "1", 1, {}, True, "boolean"),
        ("bit", "101", 3, {}, "BQ==", "io.debezium.data.Bits"),
        ("varbit", "1000000001", 10, {}, "AQI=", "io.debezium.data.Bits"),
        ("varbit", "000", 10, {}, "", "io.debezium.data.Bits"),
        ("hstore", '"a"=>"1", "b \\"c\\""=>NULL', -1, {}, '{"a":"1","b \\"c\\"":null}', "io.debezium.data.Json"),
        ("hstore", '"a"=>"1", "b"=>NULL', -1, {"hstore": "map"}, {"a": "1", "b": None}, "map"),
        ("hstore", "", -1, {"hstore": "map"}, {}, "map"),
        ("bytea", r"\xfbff", -1, {"binary": "base64-url-safe"}, "-_8=", "base64-url-safe"),
        ("bytea", r"\xfbff", -1, {"binary": "hex"}, "fbff", "hex"),
        ("numeric", "1.500", -1, {}, {"scale": 1, "value": "Dw=="}, "io.debezium.data.VariableScaleDecimal"),
        ("numeric", "12300", -1, {}, {"scale": 0, "value": "MAw="}, "io.debezium.data.VariableScaleDecimal"),
        ("_int4", "{1,NULL,-3}", -1, {}, [1, None, -3], "array<int32>"),
        ("_text", '{a,"b \\"c\\\\d",NULL,"NULL",""}', -1, {}, ["a", 'b "c\\d', None, "NULL", ""], "array<string>"),
        ("_bool", "{t,f}", -1, {}, [True, False], "array<boolean>"),
        ("_float8", "{1.5,NaN}", -1, {}, [1.5, "NaN"], "array<float64>"),
        ("_date", "{1970-01-02}", -1, {}, [1], "array<io.debezium.time.Date>"),
        ("_bytea", r'{"\\x00ff"}', -1, {}, ["AP8="], "array<bytes>"),
        ("_uuid", "{c0ffee00-0000-4000-8000-000000000001}", -1, {}, ["c0ffee00-0000-4000-8000-000000000001"],
         "array<io.debezium.data.Uuid>"),
        ("_jsonb", r'{"{\"a\": 1}"}', -1, {}, ['{"a": 1}'], "array<io.debezium.data.Json>"),
        ("_timestamptz", '{"2026-01-31 09:00:00+00"}', -1, {}, ["2026-01-31T09:00:00.000000Z"],
         "array<io.debezium.time.ZonedTimestamp>"),
        ("_int4", "[0:1][1:2]={{1,2},{3,4}}", -1, {}, [[1, 2], [3, 4]], "array<int32>"),
        ("_text", "{}", -1, {}, [], "array<string>"),
        ("_citext", "{A,b}", -1, {}, ["A", "b"], "array<string>"),
        ("_odd", "no array", -1, {}, "no array", "array<string>"),
    ],
)  # fmt: skip
def test_a_value_in_its_form(name, text, modifier, records, expected, called):
    assert written(name, text, modifier, **records) == expected
    assert form(name, modifier, **records).name == called


def test_a_point_has_its_coordinates_and_binary_form():
    result = written("point", "(1.5,-2)")
    assert (result["x"], result["y"], result["srid"]) == (1.5, -2.0, None)
    assert base64.b64decode(result["wkb"]).hex() == "0101000000000000000000f83f00000000000000c0"


@pytest.mark.parametrize("name", ["uuid", "json", "jsonb", "xml", "tsvector", "ltree"])
def test_a_name_alone_changes_no_value(name):
    assert form(name).convert is None
    assert form(name).name.startswith("io.debezium.data.")


@pytest.mark.parametrize("name", ["text", "int4", "inet", "circle", "_money", "_xml", "_point", "_interval", "pg_lsn"])
def test_others_are_as_they_were(name):
    assert debezium_type(OIDS[name], -1, Records(profile="debezium")) is None


@given(st.lists(st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=5))
def test_an_array_of_texts_is_read_as_the_server_prints_it(texts):
    def shown(one):
        if one is None:
            return "NULL"
        return '"' + one.replace("\\", "\\\\").replace('"', '\\"') + '"'

    printed = "{" + ",".join(map(shown, texts)) + "}"
    assert json.loads(array(as_text)(printed.encode())) == texts


@given(
    st.binary(max_size=20), st.sampled_from(["interval", "money", "timetz", "timestamptz", "point", "hstore", "_int4"])
)
def test_bytes_that_are_no_value_are_refused_or_written(data, name):
    try:
        form(name).convert(data)
    except ValueError:
        pass
    except (IndexError, KeyError, TypeError) as error:
        raise AssertionError(name) from error
