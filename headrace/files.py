"""Private files that survive a crash of the machine whole: the old one or the new one.

Everything that is kept in a state folder and is no database goes through here: only the owner may read it, since it may hold keys
of rows. A file that root writes, as a command does in a container, belongs to the owner of its folder, whose process reads it.
"""

import contextlib
import errno
import os
from pathlib import Path

from headrace.errors import NeedsOperator, NoSpace

#: Errors of a disk, or of a process, that pass: by freeing space, or by themselves.
_PASSING = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR,
    errno.ESTALE, errno.ETIMEDOUT,
}  # fmt: skip

#: A file in a state folder whose space is given up for one that has to be written on a full volume, and its size in bytes.
RESERVE, RESERVE_BYTES = "reserve", 512 << 10


def hold_reserve(folder: Path) -> None:
    """Have space in the folder that whoever fills the volume does not take; raise as `write_private` does."""
    path = folder / RESERVE
    if path.exists():
        return
    fresh = path.with_suffix(".new")
    try:
        try:
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
            finally:
                os.close(descriptor)
            fresh.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise
    except OSError as error:
        raise problem(path, "written", error) from error


def give_up_reserve(folder: Path) -> bool:
    """Remove the reserve; return whether there was one."""
    try:
        (folder / RESERVE).unlink()
    except FileNotFoundError:
        return False
    return True


def write_private(path: Path, data: bytes) -> None:
    """Put a file in the place of the old one, durable when this returns.

    Where the volume is full, the reserve next to it is given up for it. Where it fails the old file is there, or the new one,
    and nothing else. Raises NoSpace when that may pass, else NeedsOperator.
    """
    fresh = path.with_suffix(".new")
    try:
        try:
            try:
                _write(fresh, data)
            except OSError as error:
                if error.errno not in {errno.ENOSPC, errno.EDQUOT} or not give_up_reserve(path.parent):
                    raise
                _write(fresh, data)
            fresh.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise problem(path, "written", error) from error


def make_private_folder(path: Path) -> None:
    """Make a folder that only the owner of the one above may enter, unless it is there; raise as `write_private` does."""
    try:
        if not path.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700, exist_ok=True)
            if os.geteuid() == 0:
                owner = path.parent.stat()
                os.chown(path, owner.st_uid, owner.st_gid)
    except OSError as error:
        raise problem(path, "made", error) from error


def problem(path: Path, what: str, error: OSError) -> NoSpace | NeedsOperator:
    """Return the error of a file that cannot be `written`, `read` or the like: NoSpace when that may pass."""
    message = f"{path} cannot be {what}: {error.strerror or error}"
    if error.errno in _PASSING:
        return NoSpace(message)
    hint = "Make the folder writable for the edge's user, or fix the disk; nothing is lost meanwhile."
    return NeedsOperator(message, hint=hint).not_of_content()


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        # One that a crash left may have been made by a former release.
        os.fchmod(descriptor, 0o600)
        if os.geteuid() == 0:
            owner = path.parent.stat()
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
