"""One table that has every type, as PostgreSQL declares it and as silver holds it, ordinary and extreme values alike.

And one of random values, for the types whose text differs between engines.
"""

import random
import struct
from datetime import datetime, timedelta
from decimal import Context, Decimal

TABLE_OF_EVERY_TYPE = r"""
CREATE DOMAIN cents AS numeric(9,2);
CREATE DOMAIN price AS cents CHECK (value > 0);
CREATE TYPE mood AS ENUM ('calm', 'loud');
CREATE TYPE duo AS (x int, y text);
CREATE TABLE everything (
    id int8 PRIMARY KEY, small int2, whole int4, object oid, exact numeric(12,4), free numeric, rounded numeric(5,-2),
    single float4, double float8, flag bool, words text, padded char(6), short varchar(9), day date, local timestamp,
    instant timestamptz, hour time, zoned timetz, bytes bytea, ident uuid, document json, binary_document jsonb,
    numbers int[], host inet, cost price, paid money, span interval, feeling mood, nothing text,
    couple duo, derived int GENERATED ALWAYS AS (whole + 1) STORED
);
INSERT INTO everything VALUES
(1, -5, 100000, 4000000000, 12.5, 1.500, 12300, 1.1, 1.1, true, 'naïve|~5:é😀', 'ab', '', '2026-01-31',
 '2026-01-31 09:15:00.25', '2026-01-31 09:15:00.25+02', '09:15:00.25', '09:15:00+02', '\x00ff',
 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{"a": 1}', '{"b":2}', '{1,NULL,3}', '1.2.3.4', 7.5, 12.3,
 '1 day 02:00:00', 'calm', NULL),
(2, NULL, NULL, NULL, -0.0001, 'NaN', -100, 'NaN', 'Infinity'::float8 - 'Infinity'::float8, false, NULL, NULL, NULL,
 '0001-01-01', '0001-01-01 00:00:00',
 '1969-12-31 23:59:59.999999+00', NULL, NULL, '', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
(3, NULL, NULL, NULL, 0, 100, 0, '-Infinity', '-0', NULL, '', '', '~|', '9999-12-31', '9999-12-31 23:59:59.999999',
 '9999-12-31 23:59:59.999999+00', '00:00:00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
(4, 32767, -2147483648, 0, 99999999.9999, -0.00000000000000000000000001, 99900, 3.4028235e38, 5e-324, NULL, E'a\nb',
 'abcdef', 'x', '1582-10-10', '1582-10-10 00:00:00', '1582-10-04 23:59:59.999999+00', NULL, NULL, NULL, NULL, NULL, NULL,
 NULL, NULL, NULL, NULL, NULL, NULL, NULL),
(5, NULL, NULL, NULL, NULL, 'Infinity', NULL, 0, 0, NULL, NULL, NULL, NULL, 'infinity', 'infinity', 'infinity', NULL, NULL,
 NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
(6, NULL, NULL, NULL, NULL, '-Infinity', NULL, -1, -1, NULL, NULL, NULL, NULL, '-infinity', '-infinity', '-infinity', NULL,
 NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
(7, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '0044-03-15 BC', '0044-03-15 12:00:00 BC',
 '0044-03-15 12:00:00+00 BC', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
"""
#: T5: IS NULL is true of the second, which is not null.
COUPLES = """
UPDATE everything SET couple = (1, 'x') WHERE id = 1;
UPDATE everything SET couple = (NULL, NULL) WHERE id = 2;
"""

SILVER_OF_EVERY_TYPE = r"""
SELECT *, CASE id WHEN 1 THEN '(1,x)' WHEN 2 THEN '(,)' END AS couple FROM VALUES
(1L, -5S, 100000, 4000000000L, cast(12.5 AS decimal(12,4)), '1.500', cast(12300 AS decimal(7,0)), float('1.1'), 1.1D, true,
 'naïve|~5:é😀', 'ab    ', '', date'2026-01-31', timestamp_ntz'2026-01-31 09:15:00.25',
 timestamp'2026-01-31 07:15:00.25', '09:15:00.25', '09:15:00+02', X'00ff', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
 '{"a": 1}', '{"b": 2}', '{1,NULL,3}', '1.2.3.4', cast(7.5 AS decimal(9,2)), '$12.30', '1 day 02:00:00', 'calm',
 cast(NULL AS string)),
(2L, NULL, NULL, NULL, cast(-0.0001 AS decimal(12,4)), 'NaN', cast(-100 AS decimal(7,0)), float('NaN'), double('NaN'),
 false, NULL, NULL, NULL, date'0001-01-01', timestamp_ntz'0001-01-01 00:00:00', timestamp'1969-12-31 23:59:59.999999',
 NULL, NULL, X'', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
(3L, NULL, NULL, NULL, cast(0 AS decimal(12,4)), '100', cast(0 AS decimal(7,0)), float('-Infinity'), -0.0D, NULL, '',
 '      ', '~|', date'9999-12-31', timestamp_ntz'9999-12-31 23:59:59.999999', timestamp'9999-12-31 23:59:59.999999',
 '00:00:00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
(4L, 32767S, -2147483648, 0L, cast(99999999.9999 AS decimal(12,4)), '-0.00000000000000000000000001',
 cast(99900 AS decimal(7,0)), float('3.4028235e38'), double('4.9e-324'), NULL, 'a\nb', 'abcdef', 'x', date'1582-10-10',
 timestamp_ntz'1582-10-10 00:00:00', timestamp'1582-10-04 23:59:59.999999', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
 NULL, NULL, NULL, NULL, NULL),
(5L, NULL, NULL, NULL, NULL, 'Infinity', NULL, float('0'), 0D, NULL, NULL, NULL, NULL, date_from_unix_date(2147483647),
 cast(timestamp_micros(9223372036854775807) AS timestamp_ntz), timestamp_micros(9223372036854775807), NULL, NULL, NULL,
 NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
(6L, NULL, NULL, NULL, NULL, '-Infinity', NULL, float('-1'), -1D, NULL, NULL, NULL, NULL,
 date_from_unix_date(-2147483647), cast(timestamp_micros(-9223372036854775807) AS timestamp_ntz),
 timestamp_micros(-9223372036854775807), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
(7L, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, date'-0043-03-15',
 timestamp_ntz'-0043-03-15 12:00:00', timestamp'-0043-03-15 12:00:00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
 NULL, NULL, NULL, NULL)
AS everything(
    id, small, whole, object, exact, free, rounded, single, double, flag, words, padded, short, day, local, instant, hour,
    zoned, bytes, ident, document, binary_document, numbers, host, cost, paid, span, feeling, nothing
)
"""

RANDOMS = """
CREATE TABLE randoms (
    id int PRIMARY KEY, whole int8, exact numeric(38,18), single float4, double float8, words text, day date,
    local timestamp, instant timestamptz, bytes bytea
)
"""


#: What text may hold.
_CHARACTERS = [*range(1, 0xD800), *range(0xE000, 0x11000)]


def random_row(chance: random.Random, number: int):
    """Return a row of `randoms`; moments as text, which both engines read alike."""
    moment = datetime(1, 1, 1) + timedelta(microseconds=chance.randrange(315_537_897_599_000_000))  # noqa: DTZ001
    return (
        number,
        chance.randrange(-(2**63), 2**63),
        Decimal(chance.randrange(-(10**38) + 1, 10**38)).scaleb(-18, Context(prec=38)),
        struct.unpack("<f", chance.randbytes(4))[0],
        struct.unpack("<d", chance.randbytes(8))[0],
        "".join(chr(chance.choice(_CHARACTERS)) for _ in range(chance.randrange(20))),
        moment.date().isoformat(),
        moment.isoformat(),
        moment.isoformat() + "Z",
        chance.randbytes(chance.randrange(20)),
    )
