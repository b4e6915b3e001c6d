"""The URL of an archive: of an object store, or of a folder."""

from __future__ import annotations

import re
from urllib.parse import unquote

from rhino_core.errors import InvalidRequestError

SCHEMES = {"s3": "AWS", "gs": "GOOGLE", "az": "AZURE"}  # and the beginning of names in the environment
_INSTEAD = {
    "s3a": "write s3://",
    "hdfs": "mount HDFS, and give the folder",
    "http": "write s3://, with AWS_ENDPOINT_URL in the environment",
    "https": "write s3://, with AWS_ENDPOINT_URL in the environment",
}


def check_url(url: str) -> str:
    """Returns the URL without slashes at its end, and the path of a folder without its scheme.

    Raises InvalidRequestError for another scheme, a relative path, empty names in it, and credentials.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "file", url
    folder = scheme == "file" and rest.startswith("/")
    if not folder and re.search(r"[@?#]|//[^/]*:", url):
        # Without the URL, which has them.
        raise InvalidRequestError(
            "the archive's URL has a credential, a port or a query (@, :, ? or #): these belong in the environment"
        )
    if scheme not in ("file", *SCHEMES):
        way = _INSTEAD.get(scheme, "write s3://, gs://, az:// or an absolute path")
        raise InvalidRequestError(f"archive {url!r}: nothing serves {scheme}://: {way}")
    if not folder and scheme == "file":
        raise InvalidRequestError(f"archive {url!r}: must be an absolute path, or a URL s3://, gs:// or az://")
    plain = unquote(rest) if folder and separator else rest
    parts = plain.removeprefix("/" if folder else "").rstrip("/").split("/")
    if {"", ".", ".."} & set(parts):
        raise InvalidRequestError(f"archive {url!r}: has too many slashes, or dots for a name: write its plain path")
    return ("/" if folder else f"{scheme}://") + "/".join(parts)


def is_archive(url: str) -> bool:
    """Whether `check_url` accepts it."""
    try:
        return bool(check_url(url))
    except InvalidRequestError:
        return False
