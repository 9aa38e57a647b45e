"""How the C library hands out memory to a framework on the CPU."""

from __future__ import annotations

import ctypes
import platform
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_MOST = (2**30, 2**25)  # bytes; the second for a C library that takes no more


@cache
def keep_freed_memory() -> bool:
    """Have this process keep the memory that it frees; whether the C library agrees.

    A network that is called again and again frees what it allocates in each call. The C library gives large pieces back
    to the operating system at once, which then has to clear them for the next call: measured on small networks in
    torch, two fifths of the time. What is kept is at most what was in use at once.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    return any(library.mallopt(_MMAP_THRESHOLD, most) for most in _MOST) and bool(
        library.mallopt(_TRIM_THRESHOLD, 2 * _MOST[0] - 1)
    )
