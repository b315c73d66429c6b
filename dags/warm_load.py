"""A step of a load in a warm process: what the DAGs have in place of spark-submit where `[serve] loads` is set.

It waits on the server's socket, and is not deferrable: that socket is of the worker's machine, where no triggerer need be, and a
deferred task starts twice, which costs more seconds than a small load. While it waits it is a process of Python without a JVM.
"""

import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowFailException

#: Exit codes that another try cannot change: wrong configuration, an operator's decision, corrupt input.
_FINAL = {2, 3, 4}


class WarmLoadOperator(SparkSubmitOperator):
    """A step of a load by a running `headrace lake serve`, which has a JVM; by a driver of its own where none answers."""

    #: To the server, while it loads.
    _connection: Any = None
    _killed = False

    def __init__(self, *, loads: str, **options: Any) -> None:
        super().__init__(**options)
        self.loads = loads

    def execute(self, context: Any) -> None:
        """Load; a retry goes on from what was committed, once the load of the try before has ended."""
        from headrace import warm_loads  # noqa: PLC0415 - Airflow reads files of DAGs often.

        answer, self._connection = None, warm_loads.connect(Path(self.loads))
        if self._connection is not None:
            with self._connection:
                answer = warm_loads.load(self._connection, warm_loads.request_of(self.application_args), print)
            if self._killed:
                raise RuntimeError("the task was ended, and its load with it")
        if answer is None:
            self._connection = None
            super().execute(context)
            return
        print(answer.text)
        if answer.failure is not None:
            message = f"{answer.failure.message} {answer.failure.hint}"
            raise AirflowFailException(message) if answer.failure.exit_code in _FINAL else RuntimeError(message)

    def on_kill(self) -> None:
        """End the load: the server sees that nobody waits for it."""
        self._killed = True
        if self._connection is None:
            super().on_kill()
        else:
            # After a time-out it is closed already.
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
