"""Debezium's forms of numbers and times, checked by turning them back, and named in the schema record."""

import base64
import math
from datetime import date, datetime, timedelta
from decimal import Context, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.postgres.debezium_types import debezium_type
from headrace.configuration.edge import Records
from headrace.schema import TableSchema
from tests.unit.edge.postgres.messages import NUMERIC, Column, Log, delete, insert, relation, strict, update

DATE, TIME, TIMESTAMP, TIMESTAMPTZ = 1082, 1083, 1114, 1184
PLAIN = -1


def written(oid, text, modifier=PLAIN, **records):
    result = debezium_type(oid, modifier, Records(**records))
    assert result is not None
    return strict(result.convert(text.encode()))


def numeric(precision, scale):
    return ((precision << 16) | (scale & 0x7FF)) + 4


def unscaled(text):
    return int.from_bytes(base64.b64decode(text, validate=True), "big", signed=True)


@given(st.integers(-(10**40), 10**40), st.integers(0, 20))
def test_precise_is_the_unscaled_number_in_twos_complement(number, scale):
    text = f"{Decimal(number).scaleb(-scale, Context(prec=100)):f}"
    assert unscaled(written(NUMERIC, text, numeric(60, scale), decimal="precise")) == number
    free = written(NUMERIC, text, decimal="precise")
    shortest = Decimal(number).scaleb(-scale, Context(prec=100)).normalize(Context(prec=100))
    assert Decimal(unscaled(free["value"])).scaleb(-free["scale"], Context(prec=100)) == shortest
    assert free["scale"] == (max(-shortest.as_tuple().exponent, 0) if number else 0)


@pytest.mark.parametrize(
    ("text", "expected"), [("0", "AA=="), ("127", "fw=="), ("128", "AIA="), ("-128", "gA=="), ("-129", "/38=")]
)
def test_precise_takes_as_few_bytes_as_java(text, expected):
    assert written(NUMERIC, text, numeric(10, 0), decimal="precise") == expected


def test_a_scale_left_of_the_point():
    assert unscaled(written(NUMERIC, "12300", numeric(5, -2), decimal="precise")) == 123


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_double_is_a_number(number):
    assert math.isclose(written(NUMERIC, f"{Decimal(number):f}", decimal="double"), number)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_is_text_as_a_double_and_null_in_a_structure(text):
    """F4: a text where a typed consumer expects a structure stopped it."""
    assert written(NUMERIC, text, decimal="double") == text
    assert written(NUMERIC, text, decimal="precise") is None
    assert written(NUMERIC, text, numeric(9, 2), decimal="precise") is None


def test_a_number_beyond_doubles_is_infinite():
    assert written(NUMERIC, "1" + "0" * 400, decimal="double") == "Infinity"
    assert written(NUMERIC, "-1" + "0" * 400, decimal="double") == "-Infinity"


@given(st.dates())
def test_a_date_is_its_days_since_1970(day):
    for time in ("adaptive", "connect"):
        assert date(1970, 1, 1) + timedelta(written(DATE, str(day), time=time)) == day


@given(st.datetimes())
def test_a_timestamp_is_its_microseconds_or_milliseconds(moment):
    text = moment.isoformat(" ")
    micros = written(TIMESTAMP, text, time="adaptive")
    assert datetime(1970, 1, 1) + timedelta(microseconds=micros) == moment  # noqa: DTZ001 - has no zone.
    assert written(TIMESTAMP, text, time="connect") == micros // 1000
    assert written(TIMESTAMP, text, 3, time="adaptive") == micros // 1000
    assert written(TIMESTAMP, text, 4, time="adaptive") == micros


@pytest.mark.parametrize(
    ("oid", "text", "expected"),
    [
        (DATE, "0001-01-01 BC", -719_528),
        (DATE, "10000-01-01", 2_932_897),
        (DATE, "infinity", -2_147_472_692),
        (DATE, "-infinity", -2_147_472_691),
        (TIMESTAMP, "infinity", 9_223_372_036_825_200_000),
        (TIMESTAMP, "-infinity", -9_223_372_036_832_400_000),
        (TIMESTAMP, "0001-12-31 23:59:59.999999 BC", -62_135_596_800_000_001),
        (TIME, "24:00:00", 86_400_000_000),
        (TIME, "09:15:00.25", 33_300_250_000),
    ],
)
def test_unusual_times(oid, text, expected):
    assert written(oid, text, time="adaptive") == expected


def test_only_what_an_option_is_about_has_a_form():
    assert debezium_type(TIMESTAMPTZ, PLAIN, Records(time="adaptive")) is None
    assert debezium_type(NUMERIC, PLAIN, Records(time="connect")) is None
    assert debezium_type(DATE, PLAIN, Records(decimal="precise")) is None
    assert debezium_type(DATE, PLAIN, Records()) is None


@given(st.binary(max_size=30), st.sampled_from([DATE, TIME, TIMESTAMP, NUMERIC]))
def test_bytes_that_are_no_value_are_refused_or_written(data, oid):
    for time, decimal in (("adaptive", "precise"), ("connect", "double")):
        convert = debezium_type(oid, PLAIN, Records(time=time, decimal=decimal)).convert
        try:
            strict(convert(data))
        except ValueError:
            continue


COLUMNS = [Column("id", 20, key=True), Column("n", NUMERIC, modifier=numeric(9, 2)), Column("d", DATE), Column("t")]
ROW, SHOWN = (1, "12.50", "1970-01-02", 'a "b"'), {"id": 1, "n": "BOI=", "d": 1, "t": 'a "b"'}


def test_rows_hold_the_forms_in_every_message_and_the_schema_record_names_them():
    log = Log(decimal="precise", time="adaptive", key_of=lambda _: ["id"])
    columns = [column._replace(key=True) for column in COLUMNS]
    nulls = (2, None, None, None)
    log.transaction(
        relation(*columns, identity="f"),
        insert(*ROW),
        insert(*ROW),
        update(ROW, old=ROW),
        delete(old=ROW),
        insert(*nulls),
    )
    schema, *changes = log.records()
    rows = [row for change in changes[:4] for row in (change.value["before"], change.value["after"]) if row]
    assert rows == [SHOWN] * 5
    assert changes[-1].value["after"] == {"id": 2, "n": None, "d": None, "t": None}
    reported = schema.value["tableChanges"][0]["table"]["columns"]
    assert [column.get("form") for column in reported] == [
        None,
        "org.apache.kafka.connect.data.Decimal",
        "io.debezium.time.Date",
        None,
    ]


def test_the_schema_record_of_ordinary_forms_does_not_name_them():
    log = Log()
    log.transaction(relation(*COLUMNS), insert(*ROW))
    assert all("form" not in column for column in log.records()[0].value["tableChanges"][0]["table"]["columns"])


def test_a_schema_with_forms_is_read_back():
    log = Log(decimal="double")
    log.transaction(relation(*COLUMNS), insert(*ROW))
    (sealed,) = log.batches()
    schema = TableSchema.parse(sealed.values[0])
    assert [column.form for column in schema.columns] == [None, "double", None, None]
