"""Where Spark's and Kafka's jars are: `HEADRACE_JARS`, the set-up of a checkout, or the user's own data.

The DAG file knows the same places, and imports nothing of ours. Called by who starts a JVM and by who fetches jars.
"""

import os
from pathlib import Path


def folder() -> Path:
    """Return the folder that holds, or will hold, a folder of jars for each purpose."""
    if named := os.environ.get("HEADRACE_JARS"):
        return Path(named).absolute()
    checkout = Path(__file__).resolve().parents[1]
    if (checkout / "pyproject.toml").exists():
        return checkout / ".setup" / "jars"
    # An installed package: `headrace jars` fetches them.
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "headrace" / "jars"
