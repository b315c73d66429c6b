"""Memory that is freed goes back to the system: a process's budget is what it holds, not the most of each thread added up.

The allocator of glibc has an arena for each thread and keeps there what was freed. With large batches once in each lane, in the
receiver and in Kafka's threads, a bridge came to 710 MB of which it used less than 440 at any one time.
"""

import ctypes
from contextlib import suppress

#: Settings of `mallopt`, by the numbers that glibc's malloc.h has for them.
_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
#: From so many bytes on, what is allocated has pages of its own, which are given back.
_LARGE = 1 << 20
_ARENAS = 2


def give_back_freed() -> None:
    """Have large blocks given back when they are freed, and few arenas; nothing happens where the C library is another one."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _LARGE)
        mallopt(_ARENA_MAX, _ARENAS)
