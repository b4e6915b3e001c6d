"""Marks folders for ext4 to place their subfolders far from each other.

ext4 searches for the inode of a new file near its folder. It skips, one by one, the inodes of files deleted in the last
minutes. So creating a file is slow in a folder of short-lived files.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
from pathlib import Path

_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602  # FS_IOC_GETFLAGS and FS_IOC_SETFLAGS of linux/fs.h, 64 bits
_TOP_DIRECTORY = 0x00020000  # FS_TOPDIR_FL, `chattr +T`


def spread_subfolders(folder: Path) -> None:
    """Sets the mark. It is only a hint: a file system without support for it refuses, and nothing changes."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = array.array("l", [0])
        with contextlib.suppress(OSError):
            fcntl.ioctl(fd, _GET_FLAGS, flags)
            flags[0] |= _TOP_DIRECTORY
            fcntl.ioctl(fd, _SET_FLAGS, flags)
    finally:
        os.close(fd)
