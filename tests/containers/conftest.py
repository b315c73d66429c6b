"""The images, built once a run, and the stack of docker-compose.yml."""

import os
from pathlib import Path

import pytest

from tests.containers.engine import Podman
from tests.containers.stack import Stack

#: podman-compose, in an environment of its own (make test-containers).
COMPOSE = Path(os.environ.get("HEADRACE_COMPOSE", ".setup/containers/bin/podman-compose")).absolute()


@pytest.fixture(scope="session")
def podman(tmp_path_factory):
    """Podman with all images built from this tree."""
    engine = Podman(tmp_path_factory.mktemp("podman"))
    engine.build_all()
    return engine


@pytest.fixture(scope="module")
def stack(podman):
    """The whole of docker-compose.yml, running; removed with its volumes at the end."""
    with Stack(podman, COMPOSE) as running:
        yield running
