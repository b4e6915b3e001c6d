"""Rhino's command on a disk that takes 36 MB/s: `python -m tests.worker_runtime.slow_sidecar sidecar ...`."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from rhino.cli.main import main
from worker_runtime.storage.disk.incoming import Incoming, Piece

BYTES_PER_S = 36e6
_turn = threading.Lock()
_write = Incoming.write


def slow_write(incoming: Incoming, pieces: Sequence[Piece]) -> None:
    with _turn:
        time.sleep(sum(map(len, pieces)) / BYTES_PER_S)
    _write(incoming, pieces)


if __name__ == "__main__":
    setattr(Incoming, "write", slow_write)  # noqa: B010  mypy does not let a method be replaced
    main()
