"""Locations of query checkpoints. Different spellings of one location are equal."""

from __future__ import annotations

import re

_LOCATION = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?(?://(?P<authority>[^/]*))?(?P<path>/.*)\Z", re.DOTALL
)
_DEFAULT_PORTS = {"hdfs": ":8020"}


def canonical(location: str) -> str:
    """One spelling for `file:/x`, `file:///x/`, `/x` and `rhino://file/x`, as Hadoop writes it: `file:/x`.

    A query checkpoint at `rhino://<scheme>@<authority>/<path>` keeps its logs at `<scheme>://<authority>/<path>`. Any
    text but an absolute location is returned unchanged.
    """
    match = _LOCATION.match(location)
    if match is None:
        return location
    scheme, authority = (match["scheme"] or "file").lower(), (match["authority"] or "").lower()
    if scheme == "rhino":
        scheme, _, authority = authority.partition("@")
    authority = authority.removesuffix(_DEFAULT_PORTS.get(scheme, ""))
    if scheme == "file" and authority == "localhost":
        authority = ""
    path = re.sub("/+", "/", match["path"]).rstrip("/") or "/"
    return f"{scheme}:{'//' if authority else ''}{authority}{path}"
