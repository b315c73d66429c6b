"""The notebook of examples/sales, run by Jupyter with Spark's client alone (issue 33)."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.lake.served import Server

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".setup" / "readers" / "bin" / "python"
PROGRAM = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=240, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[2])
"""
pytestmark = pytest.mark.timeout(900)


def test_the_notebook_asks_the_server_and_the_files_the_same(sales, tmp_path):
    server = Server(Path(sales.path))
    server.start()
    try:
        environment = os.environ | {
            "SPARK_REMOTE": server.url(),
            "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(server.authority),
            "LAKE": str(sales.path),
            "PYTHONPATH": str(ROOT),
        }
        executed = tmp_path / "executed.ipynb"
        command = [PYTHON, "-c", PROGRAM, ROOT / "examples" / "sales" / "notebook.ipynb", executed]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr[-2000:]
    finally:
        server.stop()
    asked, read = (cell for cell in json.loads(executed.read_text())["cells"] if cell["cell_type"] == "code")
    shown, same = ("".join(cell["outputs"][-1]["data"]["text/plain"]) for cell in (asked, read))
    assert [line.split()[1:3] for line in shown.splitlines()[1:]] == [["london/sales", "1"]]
    assert [line.split()[:4] for line in same.splitlines()] == [line.split()[:4] for line in shown.splitlines()]
