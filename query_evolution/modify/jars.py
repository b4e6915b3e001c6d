"""Functions of Scala and Java, as a record names them: a class of a jar beside the records."""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from rhino_core.errors import InvalidRequestError

JAR_MAX_BYTES = 16 * 1024 * 1024  # the driver sends it to all executors
_CLASS = re.compile(r"[^\W\d][\w$]*(\.[^\W\d][\w$]*)*")


@dataclass(frozen=True, slots=True)
class JarCode:
    """A class of a jar. `class_name`: as Java names it; `sha256`: of the jar, in hexadecimal; `size`: its bytes."""

    class_name: str
    sha256: str
    size: int

    def to_fields(self) -> dict[str, Any]:
        """Returns it for JSON."""
        return {"class": self.class_name, "sha256": self.sha256, "bytes": self.size}

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError if they are damaged."""
        made = cls(str(fields["class"]), str(fields["sha256"]), int(fields["bytes"]))
        if not re.fullmatch("[0-9a-f]{64}", made.sha256):
            raise ValueError(f"{made.sha256!r} is no SHA-256")
        return made


@dataclass(frozen=True, slots=True)
class JarFunction:
    """The result of `jar_function`: a class and its jar."""

    code: JarCode
    content: bytes = field(repr=False)


def jar_function(jar: str | Path, class_name: str) -> JarFunction:
    """Makes a class of Java or Scala in a jar into an argument of `Modifications.replace_function`.

    The class has a public constructor without arguments, and implements `org.apache.spark.sql.api.java.UDF1` (0 to 22,
    the number of arguments) or Scala's `Function1`. It may be a Scala object. The jar is read here and now, and has all
    classes that the class needs and the query's executors lack. Raises InvalidRequestError if it cannot be read, has no
    such class, or has more than 16 MiB.
    """
    path = Path(jar)
    if not _CLASS.fullmatch(class_name):
        raise InvalidRequestError(f"{class_name!r} is no name of a class: give it as com.acme.Score")
    try:
        size = path.stat().st_size
        content = path.read_bytes() if size <= JAR_MAX_BYTES else b""
    except OSError as error:
        raise InvalidRequestError(f"the jar {path} cannot be read: {error.strerror}") from error
    if size > JAR_MAX_BYTES:
        raise InvalidRequestError(
            f"the jar {path} has {size} bytes, and {JAR_MAX_BYTES} are allowed: leave out Spark, Scala and what the "
            "application has"
        )
    _check_class(path, content, class_name)
    return JarFunction(JarCode(class_name, hashlib.sha256(content).hexdigest(), len(content)), content)


def _check_class(path: Path, content: bytes, class_name: str) -> None:
    """Raises InvalidRequestError if the jar has no file for this class."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as jar:
            names = set(jar.namelist())
    except zipfile.BadZipFile as error:
        raise InvalidRequestError(f"{path} is no jar: {error}") from error
    simple = class_name.rpartition(".")[2]
    if f"{class_name.replace('.', '/')}.class" not in names:
        alike = sorted(
            name.removesuffix(".class").replace("/", ".")
            for name in names
            if re.search(rf"(^|[/$]){re.escape(simple)}\.class$", name)
        )
        hint = f"; it has {', '.join(alike)}" if alike else ""
        raise InvalidRequestError(f"the jar {path} has no class {class_name}{hint}")
