"""A load that dies after its tables were written and before it publishes."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.configuration.lake import LakeFile
from spark_jobs.state import published


@contextmanager
def dying_before_it_publishes(lake: LakeFile) -> Iterator[None]:
    """Leave no trace in what is published of a load inside the block."""
    place = Path(published.path(lake))
    kept = place.with_name("kept")
    shutil.copytree(place, kept)
    yield
    shutil.rmtree(place)
    kept.rename(place)
