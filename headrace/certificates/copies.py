"""Copies of certificates for services: each gets its own two files and the authorities' certificates, and nothing else.

Guarantees that no authority's key is among them, and that a key is readable by its owner alone from its first byte on. Called by
`headrace certs --copy`, which docker-compose.yml runs where the authority is and no service.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from headrace.errors import ConfigurationError
from headrace.files import write_private


def deliver(folder: Path, name: str, into: Path, owner: int | None) -> Iterator[Path]:
    """Copy a certificate, its key and its authority's certificate into a folder; yield what was written.

    What `--interior-router` made for that name goes into a folder `routers` in it. `owner`, a user's number, owns the copies and
    the folders. Raises ConfigurationError when there is no certificate of that name.
    """
    if not (folder / f"{name}.pem").exists():
        raise ConfigurationError(
            f"--copy {name}={into}: there is no certificate {name}.pem in {folder}",
            hint=f"Name it by --source, --client or --server; here are: {', '.join(_names(folder))}.",
        )
    yield from _copy(folder, name, into, owner)
    if (folder / "routers" / f"{name}.pem").exists():
        yield from _copy(folder / "routers", name, into / "routers", owner)


def _copy(folder: Path, name: str, into: Path, owner: int | None) -> Iterator[Path]:
    into.mkdir(parents=True, exist_ok=True)
    into.chmod(0o700)
    for file in ("authority.pem", f"{name}.pem", f"{name}.key"):
        target = into / file
        write_private(target, (folder / file).read_bytes())
        if owner is not None:
            os.chown(target, owner, owner)
        yield target
    if owner is not None:
        os.chown(into, owner, owner)


def _names(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.pem") if path.stem != "authority")
