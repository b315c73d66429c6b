"""Events of loads for catalogs of lineage, by OpenLineage's own client: the extra `lineage`, and [lineage] in the lake's file.

A load that published is a run of the job `load.STREAM`, from the stream's topic to the tables of silver that went on, each with
its version, the changes that were applied and a facet of ours, `headrace_positions`: from where to where of each source. A load
that failed is a run that failed. What cannot be sent is a warning: no load fails by it. Called by load.py.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from threading import Thread
from typing import Any, NamedTuple

from headrace import __version__
from headrace.configuration.lake import LakeFile, local_path
from headrace.errors import ReplicationError
from spark_jobs.silver import table_task
from spark_jobs.silver.load import SilverReport

_log = logging.getLogger(__name__)
#: Identifies a release; nothing is published at these addresses. The schema of our facet is spark_jobs/positions_facet.json.
_PRODUCER = f"https://headrace.invalid/{__version__}"
_SCHEMA = f"{_PRODUCER}/positions_facet.json#/$defs/HeadracePositionsDatasetFacet"
_TIMEOUT_SECONDS = 5
#: How long a load waits for all of it: a server may answer byte by byte, each in time.
_CLOSE_SECONDS = 20.0


def send_load(lake: LakeFile, stream: str, done: SilverReport) -> None:
    """Report a load that published."""
    if lake.lineage is None:
        return
    now = datetime.now(UTC)
    _send(lake, _Run(stream, now - timedelta(seconds=done.seconds), now, done))


@contextmanager
def failure_sent(lake: LakeFile, stream: str) -> Iterator[None]:
    """Report a load that fails inside; its message is in the event."""
    began = datetime.now(UTC)
    try:
        yield
    except ReplicationError as error:
        if lake.lineage is not None:
            _send(lake, _Run(stream, began, datetime.now(UTC), problem=error.message))
        raise


class _Run(NamedTuple):
    """A load that has ended: what it did, or why it failed."""

    stream: str
    began: datetime
    ended: datetime
    done: SilverReport | None = None
    problem: str = ""


def _send(lake: LakeFile, run: _Run) -> None:
    # Here, and not in the thread: one that is given up would still import, and the next one find half of the package.
    try:
        from openlineage.client import event_v2  # noqa: F401
    except ModuleNotFoundError:
        _log.warning("no event of lineage: the package openlineage-python is not installed (the extra 'lineage')")
        return
    sending = Thread(target=_emit, args=(lake, run), name="lineage", daemon=True)
    sending.start()
    sending.join(_CLOSE_SECONDS)
    if sending.is_alive():
        _log.warning("events of lineage are not waited for any more after %.0f s", _CLOSE_SECONDS)


def _emit(lake: LakeFile, run: _Run) -> None:
    try:
        client = _client(lake)
        for event in _events(lake, run):
            client.emit(event)
        # Events wait in the client until then.
        client.close(_TIMEOUT_SECONDS)
    except Exception as error:  # noqa: BLE001 - whatever a transport raises is no reason to fail a load.
        _log.warning(
            "the load is not known to %s: %s",
            lake.lineage and (lake.lineage.url or lake.lineage.file),
            type(error).__name__,
        )


def _events(lake: LakeFile, run: _Run) -> list[Any]:
    """Return the two events of a run: its start and its end."""
    from openlineage.client import event_v2 as api
    from openlineage.client.generated import (
        dataset_version_dataset,
        error_message_run,
        output_statistics_output_dataset,
    )
    from openlineage.client.uuid import generate_new_uuid

    assert lake.lineage is not None
    api.set_producer(_PRODUCER)
    done = run.done
    failed = error_message_run.ErrorMessageRunFacet(run.problem, "PYTHON")
    topic = api.InputDataset(f"kafka://{lake.kafka.bootstrap.partition(',')[0]}", lake.topic(run.stream))
    positions = _positions_facet()
    ranges = done.ranges if done is not None else {}
    outputs = (
        [
            api.OutputDataset(
                *_place(table_task.path(lake, run.stream, name)),
                facets={
                    "version": dataset_version_dataset.DatasetVersionDatasetFacet(str(done.versions.get(name))),
                    "headrace_positions": positions(
                        load=done.load,
                        sources=[
                            {"source": s, "after": low, "upto": high} for s, (low, high) in sorted(ranges.items())
                        ],
                    ),
                },
                outputFacets={
                    "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                        rowCount=changes
                    )
                },
            )
            for name, changes in sorted(done.changes.items())
            # Of a table that cannot be made yet, or is copied for the first time, nothing is published.
            if done.versions.get(name) is not None
        ]
        if done is not None
        else []
    )
    at = {
        "run": api.Run(str(generate_new_uuid(run.began)), {"errorMessage": failed} if run.problem else {}),
        "job": api.Job(lake.lineage.namespace, f"load.{run.stream}"),
        "inputs": [topic],
    }
    state = api.RunState.FAIL if done is None else api.RunState.COMPLETE
    return [
        api.RunEvent(eventTime=run.began.isoformat(), eventType=api.RunState.START, **at),
        api.RunEvent(eventTime=run.ended.isoformat(), eventType=state, outputs=outputs, **at),
    ]


@cache
def _positions_facet() -> Any:
    """Return the class of our facet: the client makes JSON of its own classes alone."""
    import attr
    from openlineage.client.generated.base import DatasetFacet

    @attr.define
    class HeadracePositionsDatasetFacet(DatasetFacet):  # type: ignore[misc] # the client may be missing.
        load: int
        sources: list[dict[str, str]]

        @staticmethod
        def _get_schema() -> str:
            return _SCHEMA

    return HeadracePositionsDatasetFacet


def _place(path: str) -> tuple[str, str]:
    """Return namespace and name of a folder, as OpenLineage's naming has them."""
    # A table's name may have what addresses have a meaning for.
    scheme, is_remote, place = path.partition("://")
    if not is_remote or scheme == "file":
        return "file", local_path(path)
    bucket, _, name = place.partition("/")
    return f"{'s3' if scheme in {'s3a', 's3n'} else scheme}://{bucket}", name


def _client(lake: LakeFile) -> Any:
    assert lake.lineage is not None
    from openlineage.client import OpenLineageClient

    if lake.lineage.file is not None:
        place = str(lake.resolve(str(lake.lineage.file)))
        transport: dict[str, Any] = {"type": "file", "log_file_path": place, "append": True}
    else:
        retry = {"total": 1, "respect_retry_after_header": False}
        transport = {"type": "http", "url": lake.lineage.url, "timeout": _TIMEOUT_SECONDS, "retry": retry}
        if lake.lineage.api_key is not None:
            transport["auth"] = {"type": "api_key", "apiKey": lake.lineage.api_key.reveal()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return OpenLineageClient(config={"transport": transport})
