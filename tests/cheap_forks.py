"""Make a process cheap to fork once it has imported all that its children will use.

A process of a gigabyte took 50 ms to fork and to end, nearly all of it for tables of 4 KiB pages; now 15 ms.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import weakref
from pathlib import Path

_HUGE = 2 << 20
_MADV_COLLAPSE = 25
"""Of Linux 6.1; where there is none, the pages stay as they are."""
_COLLECT = (10_000, 10, 10)
"""A collection each 700 objects, as Python has it, is 2 to 3 % of the CPU of a command (`perf`)."""


def make_forks_cheap() -> None:
    """Call this last: what is allocated later is as before."""
    gc.freeze()  # no child walks through what is there now, and thereby copies it
    gc.set_threshold(*_COLLECT)
    for each in weakref.finalize._registry:
        each.atexit = False  # torch would take its 192 libraries to pieces as each child ends
    atexit.unregister(_LeftOut())
    _collapse()


class _LeftOut:
    """What is equal to the functions that libraries would call as each child ends, 16 ms of CPU for nothing.

    Onnx's bindings look for what leaks, and copy 12 MB of their parent's pages; torch counts what it compiled.
    """

    def __eq__(self, function: object) -> bool:
        code = getattr(function, "__code__", None)
        return code is not None and (code.co_filename == "<internal>" or code.co_name == "dump_compile_times")

    __hash__ = object.__hash__


def _collapse() -> None:
    """Put our own memory into huge pages."""
    libc = ctypes.CDLL(None)
    libc.malloc_trim(0)
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, rights, _, _, inode, *name = line.split()
        if rights.startswith("rw") and inode == "0" and name in ([], ["[heap]"]):
            begin, end = (int(address, 16) for address in addresses.split("-"))
            for address in range(-(-begin // _HUGE) * _HUGE, end - _HUGE + 1, _HUGE):
                libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(_HUGE), _MADV_COLLAPSE)
