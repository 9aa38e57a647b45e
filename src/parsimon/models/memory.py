"""Settings of the C library's memory allocation in this process."""

from __future__ import annotations

import ctypes
import platform
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_MOST = (2**30, 2**25)  # bytes; the second for a C library that takes no more


@cache
def keep_freed_memory() -> bool:
    """Make this process keep the memory that it frees, and return whether the C library agrees.

    A network allocates and frees the same memory in every call. The C library gives large blocks back to the operating
    system, which clears them before the next call. That takes up to two fifths of the time of a small network in torch.
    The command `parsimon` and its workers call this. In Python, call it once; the process keeps at most its peak.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    return any(library.mallopt(_MMAP_THRESHOLD, most) for most in _MOST) and bool(
        library.mallopt(_TRIM_THRESHOLD, 2 * _MOST[0] - 1)
    )
