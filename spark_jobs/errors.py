"""Errors of Spark and Delta, converted to errors that state who must act.

Guarantees that no row value gets into a message: Spark's own text can quote rows, so only its error class is repeated, and
the places that our own expressions raise (`place_of`).
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.errors import ConfigurationError, CorruptInput, NeedsOperator, NotConnected, ReplicationError, Retryable

_MARK = "headrace-corrupt"
#: What is wrong with a record in Avro while its schema is not known.
AVRO = "avro"
#: And of one that is not of its schema.
AVRO_FORM = "avro-form"
_PLACE = re.compile(rf"{_MARK} topic (\S+) partition (\d+) offset (\d+) what \"([^\"]*)\"")
_CONCURRENT = re.compile(
    r"\b(Concurrent\w+Exception|DELTA_CONCURRENT\w*|MetadataChangedException|ProtocolChangedException)"
)
_GONE = re.compile(r"OffsetOutOfRange|KAFKA_DATA_LOSS|data may have been lost|failOnDataLoss")
#: What Delta and Spark report of files of a table that are missing, or are not what they were.
_DAMAGED = re.compile(
    r"DELTA_(VERSIONS_NOT_CONTIGUOUS|TRUNCATED_TRANSACTION_LOG|LOG_FILE_NOT_FOUND\w*|MISSING_PART_FILES|FILE_NOT_FOUND\w*"
    r"|CHECKPOINT_\w+|STATE_RECOVER_ERROR|VERSION_NOT_FOUND|CANNOT_FIND_VERSION\w*|METADATA_ABSENT\w*|TABLE_ID_MISMATCH"
    r"|INCOMPLETE_FILE\w*|UNEXPECTED_NUM_PARTITION\w*)"
    r"|FAILED_READ_FILE|CANNOT_READ_FILE_FOOTER|FileNotFoundException|ChecksumException|JsonParseException|JsonEOFException"
    r"|JsonMappingException|MALFORMED_LOG_FILE|is not a Parquet file|VersionNotFoundException"
)
#: What Spark reports of a value, which is the same however often it is computed.
_OF_VALUES = re.compile(
    r"((BINARY_)?ARITHMETIC_OVERFLOW|CAST_(OVERFLOW|INVALID_INPUT)\w*|NUMERIC_\w+|DATETIME_OVERFLOW)(\.\w+)*"
)
_FILE = re.compile(r"\b[a-z0-9]+:/[^\s,;'\"\])]+")
#: What `headrace lake serve` refuses, in its own words: from within a query, or as the answer to a request.
_REFUSAL = re.compile(
    r"\(headrace\.serve\.Refusal\) ([^\n]+)"
    r"|StatusCode\.(?:PERMISSION_DENIED|RESOURCE_EXHAUSTED|DEADLINE_EXCEEDED|NOT_FOUND)\s+details = \"([^\"\n]+)\""
)
_UNREACHABLE = re.compile(r"org\.apache\.kafka\.common\.errors\.(Timeout|Disconnect|Network)Exception")


def corrupt(what: str) -> Column:
    """Return an expression that fails the job, naming the record's place in Kafka and `what` is wrong, never its value."""
    at = (F.col("topic"), F.col("partition").cast("string"), F.col("offset").cast("string"))
    texts = mark("\0", "\0", "\0", what).split("\0")
    pieces = [
        F.lit(texts[0]),
        *(piece for place, text in zip(at, texts[1:], strict=True) for piece in (place, F.lit(text))),
    ]
    return F.raise_error(F.concat(*pieces))


def mark(topic: str, partition: str, offset: str, what: str) -> str:
    """Return the text of a failure at a record, by which `explain` recognises it."""
    return f'{_MARK} topic {topic} partition {partition} offset {offset} what "{what}"'


class Misfit(NeedsOperator):
    """What a source sent does not fit its table, or what other sources sent."""


class SparkFailed(Retryable):
    """Spark could not finish something, for a reason that may pass, such as a lack of memory."""


class Conflict(Retryable):
    """Another process wrote to the same table at the same time, and this one's commit was refused."""


def is_conflict(error: Exception) -> bool:
    """Whether a commit failed because another one came first: it can be tried again on what is there now."""
    return bool(_CONCURRENT.search(str(error)) or "DELTA_PATH_EXISTS" in str(error))


def damaged(what: str, file: str) -> NeedsOperator:
    """Return the error for a file of a table that is missing, or cannot be read; `file` is empty where it is not known."""
    return NeedsOperator(
        f"{what}: a file of a table is missing or damaged{f': {file}' if file else ''}",
        hint="Nothing was published. Put the file back from a copy of the lake. Without one: tables of silver and history are "
        "built again by 'headrace lake replay STREAM' once their folders are moved away, bronze, as far as Kafka goes back, by "
        "'headrace lake replay STREAM --layer bronze' (docs/recovery.md). Only 'headrace lake maintain' may VACUUM the lake.",
    )


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Convert what Spark raises inside to an error that states who must act; `doing` names the step."""
    try:
        yield
    except ReplicationError:
        raise
    except (PySparkException, Py4JError) as error:
        raise explain(error, doing) from error


def explain(error: Exception, doing: str) -> ReplicationError:
    """Return the error that states who must act."""
    text = str(error)
    if match := _PLACE.search(text):
        topic, partition, offset, what = match.groups()
        wrong = _WHAT.get(what, f"column {what}: no such value in its type")
        cure = "" if what in _WHAT else _CURE
        return CorruptInput(
            f"{doing}: topic {topic}, partition {partition}, offset {offset}: {wrong}",
            hint="Nothing of this step was committed. See what wrote that record; it can be looked at with Kafka's console "
            f"consumer: --topic {topic} --partition {partition} --offset {offset} --max-messages 1.{cure}",
        )
    if refusal := _REFUSAL.search(text):
        return ConfigurationError(refusal[1] or refusal[2])
    if storage_error := _of_storage(error, text, doing):
        return storage_error
    if doing.startswith("silver ") and _OF_VALUES.fullmatch(name := _name(error)):
        return CorruptInput(
            f"{doing}: a value is beyond what its type or form can be computed with ({name})",
            hint="It would be so again. Correct the row at its source, then copy the table again.",
        )
    if isinstance(error, AnalysisException):
        return NeedsOperator(
            f"{doing}: Spark refuses the statement ({_name(error)})",
            hint="It would refuse it again. 'headrace -v' shows Spark's own words.",
        )
    return SparkFailed(
        f"{doing}: Spark could not finish ({_name(error)})",
        hint="Run it again; what was committed stays and is not done twice. 'headrace -v' shows Spark's own words.",
    )


def _of_storage(error: Exception, text: str, doing: str) -> ReplicationError | None:
    """Return the error for what happened to Kafka, or to a table's files and log; None for anything else."""
    if _GONE.search(text):
        return NeedsOperator(
            f"{doing}: Kafka no longer holds offsets that the load was reading",
            hint="Retention removed them while the load ran. Run 'headrace lake check STREAM' for the exact gap.",
        )
    file, broken = _FILE.search(text), _DAMAGED.search(text)
    # A file without its file system is one of Spark's own, of a shuffle for example.
    if broken and (file or broken[0].startswith("DELTA_")) and not _CONCURRENT.search(text):
        return damaged(f"{doing} ({_name(error)})", file[0] if file else "")
    if match := _CONCURRENT.search(text):
        return Conflict(
            f"{doing}: another load wrote to the same table at the same time ({match.group(1)}); nothing was doubled",
            hint="Run this one again.",
        )
    if _UNREACHABLE.search(text):
        return NotConnected(
            f"{doing}: Kafka does not answer", hint="Check [kafka] bootstrap, and that the cluster runs."
        )
    return None


def readable(error: Exception) -> str:
    """Return the first sentences of Spark's message on a statement, without its plan."""
    text = re.split(r"\n\s*\n|;\n'|SQLSTATE", str(error), maxsplit=1)[0].strip()
    return (
        re.sub(r"\s+", " ", re.sub(r"^\[[A-Z_.]+\]\s*", "", text)).rstrip(" .;") or "Spark cannot understand the query"
    )


#: T12: what silver's types cannot hold although the source's can.
_CURE = (
    ' Set on_unsupported = "null" for this table in the lake\'s file, and it is null there (but for keys). Or correct the row '
    'at its source (for dates with a zero month or day: zero_dates = "null" in that edge\'s file; docs/limits.md), then copy the '
    "table again: 'headrace edge snapshot --replace SCHEMA.TABLE'."
)
_WHAT = {
    "envelope": "the value is no record of ours (docs/records.md)",
    "source": "the record names another source than the one that its partition belongs to",
    AVRO: 'it is in Avro ([records] format = "avro" at its edge), and no schema of it is known',
    AVRO_FORM: "it is in Avro, and not as the schema of its id has it: the registry gave the id to another schema, or it is no "
    "record of ours",
    "row": "the row is not of the table's declared types",
}


def _name(error: Exception) -> str:
    """Return an error's class alone: Spark's condition, or the Java exception's name."""
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    java = re.search(r"\b((?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error))\b", str(error))
    return str(condition or (java.group(1) if java else type(error).__name__))
