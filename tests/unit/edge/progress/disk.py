"""A disk of which one system call fails, or at which the process is killed."""

import errno
import os
from collections import Counter

SOURCE = "jakarta/bank"
CALLS = ["open", "write", "fsync", "replace"]
ERRORS = [errno.ENOSPC, errno.EIO, errno.EMFILE]


class Killed(BaseException):
    """The process ends here: nothing that it would have done after this is done."""


class Disk:
    """The system calls that write, of which one fails; `calls` counts all of them."""

    def __init__(self, patch):
        self.calls = Counter()
        #: The call that fails, which of its kind from 1 on (0 for each), and by which error; None for a kill.
        self.failing = ("", 0, None)
        for name in CALLS:
            patch.setattr(os, name, self._faulty(name, getattr(os, name)))

    def _faulty(self, name, real):
        def call(*arguments, **options):
            self.calls[name] += 1
            failing, number, error = self.failing
            if name == failing and number in {0, self.calls[name]}:
                if name == "write":
                    real(arguments[0], arguments[1][: len(arguments[1]) // 2])
                raise Killed if error is None else OSError(error, os.strerror(error))
            return real(*arguments, **options)

        return call


def files_of(folder):
    return [path for path in folder.rglob("*") if path.is_file()]
