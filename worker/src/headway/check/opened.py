"""Which files below a directory were opened since: whoever resumes from a checkpoint opens it. By inotify(7), so
only on Linux."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

IN_OPEN = 0x20
HEADER = 16


class Opened:
    """Watches the directory as it is when this is made."""

    def __init__(self, directory: Path) -> None:
        self._names: set[str] = set()
        self._descriptor = -1
        if sys.platform != "linux":
            return
        library = ctypes.CDLL(None, use_errno=True)
        self._descriptor = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        for each in [directory, *(path for path in directory.rglob("*") if path.is_dir())]:
            library.inotify_add_watch(self._descriptor, os.fsencode(each), IN_OPEN)

    def names(self) -> set[str] | None:
        """Of files; None where nobody can tell."""
        if self._descriptor < 0:
            return None
        while data := self._read():
            while data:
                length = int.from_bytes(data[12:HEADER], sys.byteorder)
                self._names.add(data[HEADER : HEADER + length].rstrip(b"\0").decode(errors="replace"))
                data = data[HEADER + length :]
        return self._names - {""}

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, 65536)
        except BlockingIOError:
            return b""
