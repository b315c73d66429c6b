"""What names may be, as patterns and in words: a person reads the words."""

SOURCE_NAME = r"^[a-z0-9][a-z0-9_-]*/[a-z0-9][a-z0-9_.-]*$"
STREAM_NAME = r"^[a-z0-9][a-z0-9_-]*$"
#: A source, or all of a region.
SOURCES_OF = rf"{SOURCE_NAME}|^[a-z0-9][a-z0-9_-]*/\*$"
IDENTIFIER = r"^[a-z_][a-z0-9_]{0,62}$"
AMQP_ADDRESS = r"^amqps?://"
LISTEN_ADDRESS = r"^[^:]*:\d+$"
TABLE_NAME = r"^[^.]+\..+$"
TABLE_PATTERN = r"^[^.]+\.[^.]+$"
COLUMN_PATTERN = r"^[^.]+\.[^.]+\.[^.]+$"
PORTS = r"^\d{1,5}(,\d{1,5})*$"
KAFKA_PREFIX = r"^[A-Za-z0-9._-]{1,100}$"
KAFKA_INSTANCE = r"^[A-Za-z0-9._-]{0,100}$"
TOPIC_OR_EMPTY = r"^[A-Za-z0-9._-]{0,249}$"
ADDRESSES_OF = r"^[^*]+$|^[^*]+/\*$"
KAFKA_GROUP = r"^[A-Za-z0-9._-]{0,200}$"

IN_WORDS = {
    SOURCE_NAME: "a source's name: REGION/NAME, such as 'jakarta/bank', of lower-case letters, digits, '-' and '_'",
    STREAM_NAME: "a name of lower-case letters, digits, '-' and '_' that begins with a letter or a digit",
    SOURCES_OF: "a source's name such as 'jakarta/bank', or all of a region: 'jakarta/*'",
    IDENTIFIER: "a name of lower-case letters, digits and '_', at most 63 of them, that does not begin with a digit",
    AMQP_ADDRESS: "an address that begins with amqps:// or amqp://",
    LISTEN_ADDRESS: "HOST:PORT, such as '0.0.0.0:5672'",
    TABLE_NAME: "a table's name with its schema: SCHEMA.TABLE",
    TABLE_PATTERN: "SCHEMA.TABLE, in which * and ? may be used",
    COLUMN_PATTERN: "SCHEMA.TABLE.COLUMN, in which * and ? may be used",
    PORTS: "a port, or one for each host with commas between",
    KAFKA_PREFIX: "1 to 100 letters, digits, '.', '_' and '-'",
    KAFKA_INSTANCE: "at most 100 letters, digits, '.', '_' and '-'",
    TOPIC_OR_EMPTY: "a topic's name: at most 249 letters, digits, '.', '_' and '-'",
    ADDRESSES_OF: "an address such as 'alerts/jakarta', or all that begin so: 'alerts/jakarta/*'",
    KAFKA_GROUP: "at most 200 letters, digits, '.', '_' and '-'",
}
