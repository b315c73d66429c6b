"""What Spark says becomes an error that says who must act, and never repeats a row's value."""

import pytest
from pyspark.errors import AnalysisException, PySparkRuntimeError

from headrace.errors import CorruptInput, NeedsOperator, NotConnected, Retryable
from spark_jobs import errors


@pytest.mark.parametrize(
    ("said", "kind", "reported"),
    [
        (
            'x headrace-corrupt topic bank partition 3 offset 17 what "my column" y',
            CorruptInput,
            "topic bank, partition 3, offset 17: column my column",
        ),
        ('headrace-corrupt topic bank partition 0 offset 1 what "envelope"', CorruptInput, "no record of ours"),
        ("io.delta.exceptions.ConcurrentAppendException: secret", Retryable, "another load"),
        ("Some data may have been lost because they are not available; secret", NeedsOperator, "no longer holds"),
        ("org.apache.kafka.common.errors.TimeoutException: secret", NotConnected, "does not answer"),
        (
            "java.io.FileNotFoundException: s3a://b/lake/silver/bank/public.t/part-1.parquet; secret",
            NeedsOperator,
            "s3a://b/lake/silver",
        ),
        ("[DELTA_VERSIONS_NOT_CONTIGUOUS] secret", NeedsOperator, "missing or damaged"),
        ("org.apache.spark.FetchFailed java.io.FileNotFoundException: /tmp/shuffle_1", Retryable, "could not finish"),
        ("java.lang.IllegalStateException: secret", Retryable, "java.lang.IllegalStateException"),
    ],
)
def test_failure_says_who_must_act_and_no_value(said, kind, reported):
    error = errors.explain(PySparkRuntimeError(said), "silver bank")
    assert isinstance(error, kind)
    assert reported in error.message
    assert error.hint
    assert "secret" not in error.message + error.hint


def test_a_value_without_a_type_in_spark_is_named_with_a_remedy():
    """T12: a stop named neither value nor cure."""
    mark = 'headrace-corrupt topic bank partition 3 offset 17 what "%s"'
    error = errors.explain(PySparkRuntimeError(mark % "made_at"), "silver pay.orders")
    assert "zero_dates" in error.hint
    assert "on_unsupported" in error.hint
    assert "limits.md" in error.hint
    assert "zero_dates" not in errors.explain(PySparkRuntimeError(mark % "envelope"), "bronze").hint


def test_statement_that_spark_refuses_needs_an_operator():
    error = errors.explain(AnalysisException("secret"), "silver bank")
    assert type(error) is NeedsOperator
    assert "secret" not in error.message + error.hint


def test_error_of_ours_passes_as_it_is():
    with pytest.raises(NeedsOperator, match="as it was"), errors.explained("silver bank"):
        raise NeedsOperator("as it was")
