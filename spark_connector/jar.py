"""The jar of the JVM part: found in the wheel or the user's cache, or else built with the Scala compiler of Spark.

There is one jar for each minor version of Spark. Its name has the version and a hash of its inputs. The build needs
only Java and Spark.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from rhino_core.errors import UnavailableError
from rhino_core.version import rhino_version
from rhino_pb import handover_pb2, sidecar_pb2
from spark_connector.java import find_java
from spark_connector.spark_home import minor, spark_jars

HERE = Path(__file__).resolve().parent
# The engine, and query_evolution above it: one jar has both.
ROOTS = (HERE / "scala", HERE.parent / "query_evolution" / "scala")
SERVICES = "META-INF/services"  # the classes of driver extensions, for Java's ServiceLoader
COMPILE_TIMEOUT_S = 900.0  # it takes 10 to 30 s on an idle machine
# In a checkout, warnings are errors. Users build from a wheel, perhaps with a later patch version of Spark that
# deprecates something: their build must not fail for it.
IN_CHECKOUT = (HERE.parent / "pyproject.toml").is_file()
WARNINGS = ("-deprecation", "-feature", "-unchecked", "-Xlint", *(("-Werror",) if IN_CHECKOUT else ()))
FIXED_TIME = (1980, 1, 1, 0, 0, 0)  # makes builds reproducible: equal sources give an equal jar


def fingerprint() -> str:
    """Returns a short hash of all inputs of the jar."""
    digest = hashlib.sha256(rhino_version().encode() + b"\0" + descriptor_set())
    for root in ROOTS:
        for file in [*sorted(root.rglob("*.scala")), *_services(root)]:
            digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def sources() -> list[Path]:
    """Returns the Scala files. Those in `seam/` are in Spark's own package, for Spark's private members."""
    return [file for root in ROOTS for file in sorted(root.rglob("*.scala"))]


def _services(root: Path) -> list[Path]:
    return sorted((root / SERVICES).glob("*"))


def cache_folders() -> tuple[Path, Path]:
    """Returns the folders to search for jars: beside this module (in a wheel), and the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return HERE / "jars", cache / "rhino-state"


def jar_name(version: str) -> str:
    """Returns the name of the jar for this version of Spark, such as "4.3.0" or "4.3"."""
    return f"rhino-spark-{minor(version)}-{fingerprint()}.jar"


def find_jar(version: str, folders: Sequence[Path]) -> Path | None:
    """Returns the jar for this version of Spark if it has been built."""
    paths = (folder / jar_name(version) for folder in folders)
    return next((path for path in paths if path.is_file()), None)


def ensure_jar(output: Path | None = None, *, say: bool = False, timeout_s: float = COMPILE_TIMEOUT_S) -> Path:
    """Returns the jar for the installed Spark, and builds it if it is missing. `say` prints progress on stderr.

    Raises UnavailableError if it cannot be written, or if the compiler fails or runs for more than `timeout_s`.
    """
    version, jars = spark_jars()
    folders: tuple[Path, ...] = (output,) if output else cache_folders()
    if found := find_jar(version, folders):
        return found
    writable = [folder for folder in folders if _writable(folder)]
    if not writable:
        raise UnavailableError(f"cannot write a jar to any of {', '.join(map(str, folders))}; use --output-dir")
    target = writable[0] / jar_name(version)
    if say:
        print(f"building {target.name} (10 to 30 s)", file=sys.stderr, flush=True)
    started = time.monotonic()
    build(version, jars, writable[0], timeout_s=timeout_s)
    if say:
        print(f"built {target} in {time.monotonic() - started:.1f} s", file=sys.stderr)
    return target


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def build(version: str, jars: Path, folder: Path, *, timeout_s: float = COMPILE_TIMEOUT_S) -> Path:
    """Builds the jar for this version of Spark, with its jars in `jars`, into `folder`. Returns its path."""
    target = folder / jar_name(version)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        classes = Path(work) / "classes"
        compile_scala(jars, sources(), classes, timeout_s=timeout_s)
        unfinished = Path(work) / target.name
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as jar:
            _add(jar, "META-INF/MANIFEST.MF", b"Manifest-Version: 1.0\r\nCreated-By: rhino-state\r\n\r\n")
            _add(jar, "rhino/descriptors.pb", descriptor_set())
            _add(jar, "rhino/spark-version", minor(version).encode())  # the plugin compares it with the running Spark
            _add(jar, "rhino/version", rhino_version().encode())  # the driver reports it to the manager
            for service in (file for root in ROOTS for file in _services(root)):
                _add(jar, f"{SERVICES}/{service.name}", service.read_bytes())
            for path in sorted(p for p in classes.rglob("*") if p.is_file()):
                _add(jar, path.relative_to(classes).as_posix(), path.read_bytes())
        unfinished.replace(target)  # atomically: other processes see the complete jar or none
    return target


def _add(jar: zipfile.ZipFile, name: str, data: bytes) -> None:
    jar.writestr(zipfile.ZipInfo(name, FIXED_TIME), data, zipfile.ZIP_DEFLATED)


def compile_scala(
    jars: Path,
    files: Sequence[Path],
    classes: Path,
    *,
    classpath: Sequence[Path] = (),
    timeout_s: float = COMPILE_TIMEOUT_S,
) -> None:
    """Compiles Scala files into the new folder `classes`, against Spark's jars and `classpath`.

    Raises UnavailableError with the compiler's messages, or if it has not ended after `timeout_s`.
    """
    classes.mkdir()
    on_path = os.pathsep.join(str(p) for p in [*classpath, *sorted(jars.glob("*.jar"))])
    command = [str(find_java()), "-Xss4m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{jars}/*"]
    command += ["scala.tools.nsc.Main", *WARNINGS, "-classpath", on_path, "-d", str(classes), *map(str, files)]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise UnavailableError(
            f"the Scala compiler had not ended after {timeout_s:g} s and was stopped: this machine is slow or busy. "
            "`rhino jar --timeout-s` gives it more time; a released wheel of rhino-state has the jar"
        ) from None
    if result.returncode != 0:
        raise UnavailableError(f"the Scala compiler failed:\n{(result.stdout + result.stderr)[-4000:]}")


def descriptor_set() -> bytes:
    """Returns a serialized FileDescriptorSet of the proto files for the plugin, each after its imports."""
    ordered: dict[str, FileDescriptor] = {}

    def add(file: FileDescriptor) -> None:
        for dependency in file.dependencies:
            add(dependency)
        ordered.setdefault(file.name, file)

    for module in (sidecar_pb2, handover_pb2):
        add(module.DESCRIPTOR)
    result = FileDescriptorSet()
    for file in ordered.values():
        proto = FileDescriptorProto()
        file.CopyToProto(proto)
        result.file.append(proto)
    return result.SerializeToString(deterministic=True)
