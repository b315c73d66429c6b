"""The binlog's column types (`enum_field_types`), what the log has of each, and their names in schema records."""

DECIMAL, TINY, SHORT, LONG, FLOAT, DOUBLE, NULL, TIMESTAMP, LONGLONG, INT24 = range(10)
DATE, TIME, DATETIME, YEAR, NEWDATE, VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2 = range(10, 20)
BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141
VECTOR, JSON, NEWDECIMAL, ENUM, SET = 242, 245, 246, 247, 248
TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB, VAR_STRING, STRING, GEOMETRY = 249, 250, 251, 252, 253, 254, 255

#: Bytes of metadata; none for other types.
META_SIZES = {
    FLOAT: 1, DOUBLE: 1, TINY_BLOB: 1, MEDIUM_BLOB: 1, LONG_BLOB: 1, BLOB: 1, JSON: 1, GEOMETRY: 1, VECTOR: 1,
    BLOB_COMPRESSED: 1, TIMESTAMP2: 1, DATETIME2: 1, TIME2: 1, VARCHAR: 2, VARCHAR_COMPRESSED: 2, BIT: 2, NEWDECIMAL: 2,
    ENUM: 2, SET: 2, VAR_STRING: 2, STRING: 2,
}  # fmt: skip
#: Those whose metadata is two bytes with a meaning of their own, the first one more significant here.
BIG_ENDIAN_META = frozenset({NEWDECIMAL, ENUM, SET, VAR_STRING, STRING})

#: Columns whose signedness is in the log.
NUMERIC = frozenset({TINY, SHORT, INT24, LONG, LONGLONG, NEWDECIMAL, FLOAT, DOUBLE, YEAR})
#: Columns whose collation is in the log, a vector's among them; MariaDB counts geometries, too.
CHARACTER = frozenset({VARCHAR, VAR_STRING, STRING, BLOB, VECTOR})
MARIADB_CHARACTER = CHARACTER | {BLOB_COMPRESSED, VARCHAR_COMPRESSED, GEOMETRY}
#: Columns whose members are in the log, and another collation.
MEMBERED = frozenset({ENUM, SET})

#: The collation of bytes that are no text.
BINARY = 63

INTEGER_NAMES = {TINY: "TINYINT", SHORT: "SMALLINT", INT24: "MEDIUMINT", LONG: "INT", LONGLONG: "BIGINT"}
