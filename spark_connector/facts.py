"""Facts beside a query checkpoint: small files whose names are numbers, each written once and atomically."""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path

from rhino_core.errors import PreconditionError


def create_fact(folder: Path, number: int, text: str) -> bool:
    """Writes `folder/number`, and returns whether it is new. It appears with all of its content, and is on disk.

    Raises PreconditionError on a file system without hard links.
    """
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{uuid.uuid4()}.tmp"
    with temporary.open("x") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    try:
        (folder / str(number)).hardlink_to(temporary)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP):
            raise
        raise PreconditionError(f"{folder}: this file system has no hard links, which Rhino needs here") from error
    finally:
        temporary.unlink()
    return True
