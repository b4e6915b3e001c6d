"""The place of Rhino's jar for Spark: a file, a URL, or a package in a Maven repository."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from rhino_core.errors import InvalidSettingError

JARS, PACKAGES = "spark.jars", "spark.jars.packages"
ALLOWED = "a file, a URL (http, https, hdfs, s3a, local and others that Spark reads), or ivy://GROUP:ARTIFACT:VERSION"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_PACKAGE = re.compile(r"[\w.-]+:[\w.-]+:[\w.+-]+")
_OF_SERVERS = ("http", "https", "ftp")


def jar_setting(jar: str | Path) -> tuple[str, str]:
    """Returns the name and the value of the Spark setting for a jar at this place (see `ALLOWED`).

    Files must exist here. Servers are not asked: perhaps another machine starts the application.
    Raises InvalidSettingError.
    """
    text = str(jar)
    if "," in text:
        raise _refused(text, "a comma ends an entry of Spark's lists")
    if _SCHEME.match(text) is None:
        return JARS, jar_file(text, Path(text))
    try:
        url = urlsplit(text)
    except ValueError as error:
        raise _refused(text, str(error)) from None
    match url.scheme:
        case "ivy":
            return PACKAGES, _package(text)
        case "file":
            return JARS, jar_file(text, Path(url.path))
        case "rhino":
            raise _refused(text, "this jar has the classes that read rhino://")
    _check(text, url)
    return JARS, text


def jar_file(text: str, path: Path) -> str:
    """Returns the absolute path of the file that the setting `text` names. Raises InvalidSettingError without it."""
    if not path.is_file():
        raise InvalidSettingError(f"setting jar = {text!r}: no such file; `rhino jar` makes it")
    return os.path.abspath(path)  # the application may be started from another folder


def _package(text: str) -> str:
    package = text.removeprefix("ivy://")
    if not _PACKAGE.fullmatch(package):
        raise _refused(text, "not of the form ivy://GROUP:ARTIFACT:VERSION")
    return package


def _check(text: str, url: SplitResult) -> None:
    if _PACKAGE.fullmatch(text):
        raise _refused(text, f"write ivy://{text} for a package")
    if url.scheme in _OF_SERVERS and not url.netloc:
        raise _refused(text, "it names no host; in Python give it as str, for a Path drops a slash")
    if not url.path.startswith("/") or not url.path.endswith(".jar"):
        raise _refused(text, "its path must be absolute and end with .jar")


def _refused(text: str, why: str) -> InvalidSettingError:
    return InvalidSettingError(f"setting jar = {text!r}: {why}; allowed is {ALLOWED}")
