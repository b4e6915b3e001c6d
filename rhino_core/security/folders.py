"""Writing a process's certificate folder, so that a reader never finds a mixture of old and new files for long."""

from __future__ import annotations

from pathlib import Path

from rhino_core.folder import FOLDER_MODE, replace_file
from rhino_core.security.certificates import Material
from rhino_core.security.sources import AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE


def write_folder(folder: Path, material: Material) -> None:
    """Writes the three files, each at once. Only this Unix user may read them. Raises OSError."""
    folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    parts = {AUTHORITIES_FILE: material.authorities, KEY_FILE: material.key, CERTIFICATE_FILE: material.certificate}
    for name, data in parts.items():
        replace_file(folder / name, data)
