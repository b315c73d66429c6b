"""Files of the state folder that survive a crash of the machine whole: the old one or the new one."""

import os
from pathlib import Path


def write(path: Path, data: bytes) -> None:
    """Put a file in the place of the old one, durable when this returns; raise OSError when the disk refuses."""
    fresh = path.with_suffix(".new")
    with fresh.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
