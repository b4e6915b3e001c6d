"""Spark's classes as the JVM keeps them in memory, in a file that every JVM of a local cluster maps (JEP 350).

A JVM then needs a third less processor time to start, and a cluster has a dozen of them. Made by `archive_classes`;
without the file everything works as well.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from spark_connector.jar import spark_jars
from spark_connector.java import find_java


def archive() -> Path:
    """Where the archive for this Java and this installation of PySpark is, or would be."""
    java = find_java().resolve()
    _, jars = spark_jars()
    release = java.parent.parent / "release"
    digest = hashlib.sha256(f"{java} {release.read_text() if release.is_file() else ''}".encode())
    for jar in sorted(jars.glob("*.jar")):
        found = jar.stat()
        digest.update(f"{jar} {found.st_size} {found.st_mtime_ns}".encode())
    return Path(sys.prefix) / "share" / "rhino-state" / f"spark-{digest.hexdigest()[:12]}.jsa"


def archive_option() -> tuple[str, ...]:
    """For the command line of a JVM; nothing when the archive has not been made."""
    path = archive()
    return (f"-XX:SharedArchiveFile={path}",) if path.is_file() else ()
