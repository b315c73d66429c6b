"""What `make test-consumers` sets up: an environment of tests/consumers/requirements.txt, which has a Java of 21 or newer."""

import json
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
ENVIRONMENT = _ROOT / ".setup" / "consumers"
EXAMPLES = _ROOT / "examples" / "consumers"


def example(name: str, **changes: str) -> dict[str, Any]:
    """Return the settings of an example's connector; `changes` replace texts, and dots in settings' names are `__`."""
    result = json.loads((EXAMPLES / f"{name}.json").read_text())
    return result | {setting.replace("__", "."): value for setting, value in changes.items()}
