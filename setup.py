"""The one part that pyproject.toml cannot express: edge/postgres/row_json.c is compiled where that is possible.

Without a C compiler or Python's headers, and with HEADRACE_COMPILED=0, the package is pure Python, and the edge slower.
"""

import os
import shlex
import subprocess
import sysconfig

from setuptools import Extension, setup

SOURCE = "edge/postgres/row_json.c"


def can_compile() -> bool:
    """Return whether it is wanted, and the compiler takes the file, with the headers of this Python."""
    if os.environ.get("HEADRACE_COMPILED") == "0":
        return False
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    command = [*shlex.split(compiler), "-fsyntax-only", f"-I{sysconfig.get_path('include')}", SOURCE]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


if can_compile():
    # Limited API: one build serves Python 3.11 and newer.
    row_json = Extension("edge.postgres.row_json", [SOURCE], py_limited_api=True, optional=True)
    setup(ext_modules=[row_json], options={"bdist_wheel": {"py_limited_api": "cp311"}})
else:
    print("headrace: nothing is compiled: the edge decodes rows in Python alone")
    setup()
