"""A small file system of its own for a server's data, in the user namespace of a process that holds it; no root is needed."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

_MOUNT = 'mount -t tmpfs -o size="$1"m tmpfs "$0" && echo mounted && exec sleep infinity'
_PIECE = 1 << 16


class Volume:
    """A volume at a path that every process of this user can use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._other = path / "other"

    def fill(self) -> None:
        """Give what is left to something else."""
        with suppress(OSError), self._other.open("ab", buffering=0) as other:
            for size in (_PIECE, 1):
                with suppress(OSError):
                    while other.write(b"x" * size) == size:
                        pass

    def free(self) -> None:
        """Remove what filled it."""
        self._other.unlink()


@contextmanager
def small_volume(folder: Path, megabytes: int) -> Iterator[Volume]:
    """Yield a volume; it is gone with the end of the block.

    Root mounts it as it is: what changes rights by a path without links, as Hadoop does, does not find a path of a namespace.
    """
    size = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if os.geteuid() == 0 and subprocess.run(size, check=False).returncode == 0:
        try:
            yield Volume(folder)
        finally:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)
        return
    holder = subprocess.Popen(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _MOUNT, str(folder), str(megabytes)],
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        if holder.stdout.readline() != b"mounted\n":
            pytest.skip("this machine lets no user namespace mount a file system")
        yield Volume(Path(f"/proc/{holder.pid}/root{folder}"))
    finally:
        holder.kill()
        holder.communicate()
