"""Asks a running `headrace lake serve`, so that no JVM is started: SQL by Spark Connect.

The token of a user is taken from the environment as Spark's own clients take it. Called by `headrace lake sql --server`.
"""

import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from pyspark.errors import AnalysisException, PySparkException, UnsupportedOperationException
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import ConfigurationError, NeedsOperator, NotConnected, ReplicationError
from spark_jobs.errors import explain, readable

#: Spark's own name of it.
TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - no token, its name.
_CONNECT_SECONDS = 5


class RemoteEngine:
    """Runs queries at a server. Closed by `close`."""

    def __init__(self, address: str) -> None:
        """Connect; `address` is `host:port`, or as Spark has it `sc://host:port/;use_ssl=true`.

        Raises NotConnected where nothing listens, and NeedsOperator where Spark Connect's client is not installed.
        """
        url = address if address.startswith("sc://") else f"sc://{address}"
        parts = urlsplit(url)
        if "token=" in url:
            raise ConfigurationError(
                f"a token on the command line can be read by other users: give it in the environment, {TOKEN}"
            )
        # Spark's client would try for ten minutes.
        try:
            socket.create_connection((parts.hostname or "", parts.port or 15002), _CONNECT_SECONDS).close()
        except (OSError, ValueError) as error:
            raise NotConnected(
                f"no server answers at {address}", hint="Start 'headrace lake serve', or correct --server."
            ) from error
        # PySpark looks at the version of pandas, which nothing here uses.
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
        with refusals():
            try:
                self._spark: Any = SparkSession.builder.remote(url).getOrCreate()
            except ImportError as error:
                raise NeedsOperator(
                    "Spark Connect's client is not installed", hint="Run: pip install 'pyspark[connect]'."
                ) from error

    def close(self) -> None:
        """End the session."""
        self._spark.stop()

    def ask(self, query: str) -> DataFrame:
        """Return the answer; raise ConfigurationError for what the server refuses or cannot understand."""
        with refusals():
            answer: DataFrame = self._spark.sql(query.strip().rstrip(";"))
            return answer


@contextmanager
def refusals() -> Iterator[None]:
    """Convert what a server answers to errors of ours: it names what it refuses itself."""
    try:
        yield
    except ReplicationError:
        raise
    except (AnalysisException, UnsupportedOperationException) as error:
        raise ConfigurationError(readable(error)) from error
    except PySparkException as error:
        if "UNAUTHENTICATED" in str(error):
            raise NeedsOperator(
                "the server does not know this token", hint=f"Give a valid one in the environment, {TOKEN}."
            ) from error
        raise explain(error, "sql") from error
