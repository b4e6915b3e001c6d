"""An archive of Spark's loaded classes. Every JVM of a local cluster maps it into memory (JEP 350).

It saves much processor time at the start of a JVM, and a cluster starts many JVMs. `archive_classes` creates it. The
cluster also works without it.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from spark_connector.java import find_java
from spark_connector.spark_home import spark_jars


def archive() -> Path:
    """Path of the archive for this Java and this installation of PySpark, whether it exists or not."""
    java = find_java().resolve()
    _, jars = spark_jars()
    release = java.parent.parent / "release"
    digest = hashlib.sha256(f"{java} {release.read_text() if release.is_file() else ''}".encode())
    for jar in sorted(jars.glob("*.jar")):
        found = jar.stat()
        digest.update(f"{jar} {found.st_size} {found.st_mtime_ns}".encode())
    return Path(sys.prefix) / "share" / "rhino-state" / f"spark-{digest.hexdigest()[:12]}.jsa"


def archive_option() -> tuple[str, ...]:
    """Options for the command line of a JVM; empty if there is no archive."""
    path = archive()
    return (f"-XX:SharedArchiveFile={path}",) if path.is_file() else ()
