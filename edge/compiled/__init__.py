"""Row decoders in C (row_json.c and its neighbours), where they were compiled: the slowest functions of the edge once more.

They give the same bytes as the functions in Python, or leave the rows to these. Each engine makes plans of its tables for them.
"""

import importlib
import os
from typing import Any


def _load() -> Any:
    """Return the module in C; None where it was not compiled, or for another system, or HEADRACE_COMPILED is 0."""
    if os.environ.get("HEADRACE_COMPILED") == "0":
        return None
    try:
        return importlib.import_module("edge.compiled.row_json")
    except ImportError:
        return None


#: The module in C, or None.
module: Any = _load()
