"""Older revisions of Rhino, from the history of this repository: their daemons must work together with this tree's.

This is the one place that names them. At a release, replace the newer one by the tag of that release. When PROTOCOL is
raised, drop what is then more than one protocol version behind; `test_revisions.py` fails until this is done.
"""

from __future__ import annotations

import re
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

from tests.worker_runtime.cluster import ROOT

BEFORE_THE_PROTOCOL = "ea7b95f4e22fbd4120c1ae3f38b867b078507775"  # the last commit with protocol 1
FIRST_OF_THE_PROTOCOL = "3049db8ad9bd4fe6a46875debd5ca4711a0d4f0c"  # the first commit with protocol 2
PLAIN_PUSHES = "e504d76383f1de06a438b6bc9e845cd9e8d8708c"  # the last one without push encryption
OLDER = (BEFORE_THE_PROTOCOL, FIRST_OF_THE_PROTOCOL, PLAIN_PUSHES)


class NoHistoryError(Exception):
    """The revision is not there: this is a shallow clone, or no clone. The message says which and what to do."""


def extract(revision: str, folder: Path) -> Path:
    """Writes the files of a revision below `folder`. Returns the source tree. Raises NoHistoryError."""
    tree = folder / revision[:12]
    archive = _git("archive", "--format=tar", revision)
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extraction_filter = getattr(tarfile, "data_filter", None)  # of Python 3.11.4 and later
        files.extractall(tree)
    return tree


def protocol_of(tree: Path) -> int:
    """The protocol version that a source tree speaks. Version 1 did not write its number down."""
    file = tree / "rhino_core" / "protocol.py"
    written = re.search(r"^PROTOCOL = (\d+)", file.read_text(), re.MULTILINE) if file.exists() else None
    return int(written[1]) if written else 1


def _git(*arguments: str) -> bytes:
    try:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        said = error.stderr.decode().strip() if isinstance(error, subprocess.CalledProcessError) else str(error)
        raise NoHistoryError(
            f"older revisions need the history of the repository (git fetch --unshallow): {said}"
        ) from error
