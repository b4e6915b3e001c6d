"""Writing a process's certificate folder, so that a reader never finds a mixture of old and new files for long."""

from __future__ import annotations

import os
from pathlib import Path

from rhino_core.folder import FILE_MODE, FOLDER_MODE
from rhino_core.security.certificates import Material
from rhino_core.security.sources import AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE


def write_folder(folder: Path, material: Material) -> None:
    """Writes the three files, each at once. Only this Unix user may read them. Raises OSError."""
    folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    parts = {AUTHORITIES_FILE: material.authorities, KEY_FILE: material.key, CERTIFICATE_FILE: material.certificate}
    for name, data in parts.items():
        replace_file(folder / name, data)


def replace_file(path: Path, data: bytes) -> None:
    """Writes a file that only this Unix user may read, and puts it in the place of a former one. Raises OSError."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "wb") as out:
        out.write(data)
    os.replace(new, path)
