"""Certificates of two private authorities, made once for a session; tests that change files take a copy."""

import shutil
from pathlib import Path

import pytest

from headrace.certificates.command import Authority


@pytest.fixture(scope="session")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    ours = Authority(folder / "ours")
    for source in ("jakarta/bank", "london/bank", "edge-3"):
        ours.client(source)
    ours.server("bridge", ["localhost"])
    ours.server("elsewhere", ["elsewhere.example"])
    ours.server("expired", ["localhost"], days=-1)
    shutil.copy(ours.client("jakarta/bank", days=-1), folder / "late.pem")
    (folder / "ours" / "jakarta-bank.key").rename(folder / "late.key")
    ours.client("jakarta/bank")
    Authority(folder / "theirs").client("jakarta/bank")
    return folder


@pytest.fixture
def certificates(_made: Path, tmp_path: Path) -> Path:
    """Return a folder with two of them: `ours` and `theirs`, and in `late.pem` what expired."""
    return Path(shutil.copytree(_made, tmp_path / "certificates"))
