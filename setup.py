"""The one part that pyproject.toml cannot express: the C files of edge/compiled are compiled where that is possible.

Without a C compiler or Python's headers, and with HEADRACE_COMPILED=0, the package is pure Python, and the edge slower.
"""

import os
import shlex
import subprocess
import sysconfig

from setuptools import Extension, setup

SOURCES = [f"edge/compiled/{name}.c" for name in ("copied_rows", "image_values", "pgoutput", "row_images", "row_json")]


def can_compile() -> bool:
    """Return whether it is wanted, and the compiler takes the files, with the headers of this Python."""
    if os.environ.get("HEADRACE_COMPILED") == "0":
        return False
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    command = [*shlex.split(compiler), "-fsyntax-only", f"-I{sysconfig.get_path('include')}", *SOURCES]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


if can_compile():
    # Limited API: one build serves Python 3.11 and newer.
    row_json = Extension(
        "edge.compiled.row_json",
        SOURCES,
        depends=[f"edge/compiled/{name}.h" for name in ("images", "json_text", "plan")],
        extra_compile_args=["-fvisibility=hidden"],
        py_limited_api=True,
        optional=True,
    )
    setup(ext_modules=[row_json], options={"bdist_wheel": {"py_limited_api": "cp311"}})
else:
    print("headrace: nothing is compiled: the edge decodes rows in Python alone")
    setup()
