"""A small file system of its own, to be filled by a test."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


class MountError(Exception):
    """The file system could not be mounted."""


@contextlib.contextmanager
def mounted(folder: Path, size_mb: int, inodes: int = 0) -> Iterator[Path]:
    """Mounted at `folder` for the duration. `inodes`: 0 is no limit. Raises MountError when that is not permitted."""
    if os.geteuid() != 0:
        raise MountError("mounting a tmpfs needs root")
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m,nr_inodes={inodes}", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MountError(f"mounting a tmpfs is not permitted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def tmpfs(folder: Path, size_mb: int, inodes: int = 0) -> Iterator[Path]:
    """The same for a test, which is skipped when mounting is not permitted."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(mounted(folder, size_mb, inodes))
        except MountError as error:
            pytest.skip(str(error))
        yield folder


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """As when the kernel has found errors on the disk of `folder`. Skips a test that may not mount."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    for options in (("--bind", str(folder), str(folder)), ("-o", "remount,bind,ro", str(folder))):
        subprocess.run(["mount", *options], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path, leave_bytes: int) -> Path:
    """A file that leaves so many bytes free, or as few as the file system allows."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize > leave_bytes:
            file.write(bytes(4096))
    return ballast
