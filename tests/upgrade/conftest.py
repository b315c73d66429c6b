"""The pipeline of the end-to-end tests, and the previous release's command."""

from pathlib import Path

import pytest

from tests.end_to_end.conftest import pipeline
from tests.upgrade import previous

__all__ = ["pipeline"]


@pytest.fixture(scope="session")
def former() -> Path:
    """The previous release's command."""
    if not previous.HEADRACE.exists():
        previous.make()
    return previous.HEADRACE
