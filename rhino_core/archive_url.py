"""URLs of an archive of state. They are settings, so they are checked below `rhino_archive`."""

from __future__ import annotations

from pathlib import Path

from rhino_core.errors import InvalidRequestError

SCHEMES = ("s3", "gs", "az", "file")


def check_url(url: str) -> str:
    """Returns the URL. Raises InvalidRequestError for another scheme, and for a relative path."""
    scheme, separator, rest = url.partition("://")
    if separator and (scheme not in SCHEMES or not rest):
        raise InvalidRequestError(f"archive {url!r}: must be s3://, gs://, az:// or a folder (HDFS: mount it)")
    if not separator and not Path(url).is_absolute():
        raise InvalidRequestError(f"archive {url!r}: must be an absolute path, or a URL s3://, gs:// or az://")
    if "@" in rest.split("/")[0] or "?" in rest:
        raise InvalidRequestError(
            "the archive's URL has a credential or a query: credentials belong in the environment"
        )
    return url


def is_archive(url: str) -> bool:
    """Whether `check_url` accepts it."""
    try:
        return bool(check_url(url))
    except InvalidRequestError:
        return False
