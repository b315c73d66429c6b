"""Which files and folders are opened under a root, by whichever process: what a store would be asked for."""

import ctypes
import os
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from select import select
from threading import Event, Thread
from typing import Self

_OPEN, _FOLDER, _LOST = 0x20, 0x40000000, 0x4000
_HEAD = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Opens:
    """Counts while it is entered. The same file that is opened twice in a moment may count once."""

    root: Path
    #: Files that were opened, and their bytes; folders that were listed.
    files: int = 0
    size: int = 0
    listings: int = 0
    #: Names that those listings had.
    listed: int = 0
    _folders: dict[int, str] = field(default_factory=dict)
    _listed: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        """Begin to count."""
        self._descriptor = _libc.inotify_init1(os.O_NONBLOCK)
        for folder, _, _ in os.walk(self.root):
            self._watch(folder)
        self._ended = Event()
        self._thread = Thread(target=self._follow, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Count no more."""
        self._ended.set()
        self._thread.join()
        self._take()
        os.close(self._descriptor)
        self.listings = len(self._listed)
        names = {
            folder: sum(1 for _ in Path(folder).iterdir()) for folder in set(self._listed) if Path(folder).is_dir()
        }
        self.listed = sum(names.get(folder, 0) for folder in self._listed)

    def _watch(self, folder: str) -> None:
        watch = _libc.inotify_add_watch(self._descriptor, os.fsencode(folder), _OPEN)
        if watch < 0:
            raise OSError(ctypes.get_errno(), f"{folder} cannot be watched")
        self._folders[watch] = folder

    def _follow(self) -> None:
        while not self._ended.is_set():
            if select([self._descriptor], [], [], 0.1)[0]:
                self._take()

    def _take(self) -> None:
        while True:
            try:
                data = os.read(self._descriptor, 1 << 20)
            except BlockingIOError:
                return
            place = 0
            while place < len(data):
                watch, mask, _, length = _HEAD.unpack_from(data, place)
                name = data[place + _HEAD.size : place + _HEAD.size + length].rstrip(b"\0").decode()
                place += _HEAD.size + length
                assert not mask & _LOST, "more was opened than could be counted"
                self._count(self._folders.get(watch, ""), name, is_folder=bool(mask & _FOLDER))

    def _count(self, folder: str, name: str, *, is_folder: bool) -> None:
        if is_folder:
            # What is opened in a watched folder is counted by the watch of its own.
            self._listed += [] if name else [folder]
            return
        self.files += 1
        with suppress(FileNotFoundError):
            self.size += Path(folder, name).stat().st_size
