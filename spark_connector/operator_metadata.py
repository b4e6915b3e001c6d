"""The metadata of operators with schema files of their own: transformWithState, joins of state formats 3 and 4.

`state/<operator>/_metadata/v2/<batch>` describes the operator from that batch on. It names the operator's schema files
in `state/<operator>/_stateSchema` by their full paths.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from rhino_core.errors import IntegrityError, PreconditionError
from rhino_core.foreign import numbers, read_text, reading

VERSIONS = "_metadata/v2"
SCHEMAS = "_stateSchema"
_VERSION = "v2"
_NAMED = re.compile(rf"(?P<root>.+)/state/\d+/{SCHEMAS}/(?P<below>[^/]+/[^/]+)", re.DOTALL)
# As Hadoop writes a path in full: "file:/q", "rhino://file/q", "hdfs://namenode:8020/q".
_ROOT = re.compile(r"(?P<head>[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?)(?P<path>/.*)", re.DOTALL)

Fields = Mapping[str, Any]


def operators(checkpoint: Path) -> list[Path]:
    """Returns the folders of the operators, by number. Those with metadata of the other kind are among them."""
    state = checkpoint / "state"
    return [state / str(number) for number in numbers(state)]


def versions(operator: Path) -> dict[int, Path]:
    """Returns the files of an operator's metadata, by batch. Empty: it has metadata of the other kind, or none."""
    folder = operator / VERSIONS
    return {number: folder / str(number) for number in numbers(folder)}


def newest(operator: Path, batch: int | None = None) -> tuple[int, Path] | None:
    """Returns the operator's metadata at the end of `batch`, with the batch of the metadata.

    None: it has metadata of the other kind, or none. `batch` of None: the newest one. Raises PreconditionError if all
    of it is of later batches.
    """
    found = versions(operator)
    if not found:
        return None
    fitting = [number for number in found if batch is None or number <= batch]
    if not fitting:
        raise PreconditionError(
            f"{operator / VERSIONS}: describes the operator from batch {min(found)} on, and not for batch {batch}; "
            "choose a later batch"
        )
    return fitting[-1], found[fitting[-1]]


def read(path: Path) -> Fields:
    """Reads a version of the metadata. Raises IntegrityError."""
    try:
        text = read_text(path)
    except OSError as error:
        raise IntegrityError(f"{path} is not readable: {error}") from error
    with reading(path):
        version, _, body = text.partition("\n")
        if version.strip() != _VERSION:
            raise ValueError(f"version {version!r}, expected {_VERSION}")
        fields: Fields = json.loads(body)
        int(fields["operatorInfo"]["operatorId"])
        for named in schema_paths(fields):
            below(named)
    return fields


def write(path: Path, fields: Fields) -> None:
    """Writes a version of the metadata. Its folder need not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text_of(fields))


def text_of(fields: Fields) -> str:
    """Returns the content of a version of the metadata."""
    return f"{_VERSION}\n{json.dumps(fields, separators=(',', ':'), ensure_ascii=False)}"


def schema_paths(fields: Fields) -> list[str]:
    """Returns the full paths of the schema files, the oldest first."""
    return [str(path) for store in fields["stateStoreInfo"] for path in store["stateSchemaFilePaths"]]


def below(path: str) -> str:
    """Returns the part after `_stateSchema/` of a schema file's full path. Raises ValueError for another path."""
    return _parts(path)["below"]


def root(path: str) -> str:
    """Returns the checkpoint, as Spark names it, in the full path of a schema file. Raises ValueError."""
    return _parts(path)["root"]


def _parts(path: str) -> re.Match[str]:
    match = _NAMED.fullmatch(path)
    if match is None:
        raise ValueError(f"{path!r} is not the full path of a schema file")
    return match


def described(fields: Fields, operator: int, name: Callable[[str], str | None]) -> Fields:
    """Returns the metadata with another operator id, and with the present paths changed by `name`.

    A path is left out if `name` returns None.
    """
    stores = [
        {**store, "stateSchemaFilePaths": [new for path in store["stateSchemaFilePaths"] if (new := name(path))]}
        for store in fields["stateStoreInfo"]
    ]
    info = {**fields["operatorInfo"], "operatorId": operator}
    return {**fields, "operatorInfo": info, "stateStoreInfo": stores}


def schema_path(checkpoint: str, operator: int, file: str) -> str:
    """Returns the full path of a schema file. `file`: the part after `_stateSchema/`."""
    return f"{checkpoint}/state/{operator}/{SCHEMAS}/{file}"


def renamed_root(named: str, source: Path, target: Path) -> str:
    """Returns how Spark names the checkpoint in the folder `target`.

    `named` is how it names the one in the folder `source`. The two may differ, if a file system is mounted here: then
    their last parts agree. Raises PreconditionError if this does not give the path of `target`.
    """
    match = _ROOT.fullmatch(named)
    if match is None:
        raise PreconditionError(f"{source}: its metadata names it {named}, which is no full path")
    head, path = match["head"], PurePosixPath(match["path"])
    here, there = (PurePosixPath(os.path.abspath(folder)) for folder in (source, target))
    if _is_local(head) and _same(Path(path), source):
        return f"{head}{there}"
    common = 0
    while path.parts[-1 - common :] == here.parts[-1 - common :] and common + 1 < min(len(path.parts), len(here.parts)):
        common += 1
    if not common:
        raise PreconditionError(
            f"{source}: its metadata names it {named}. Give it as a folder whose path ends like that, so that it is "
            f"clear how Spark would name {target}"
        )
    mounted, remote = (PurePosixPath(*one.parts[: len(one.parts) - common]) for one in (here, path))
    if not there.is_relative_to(mounted):
        raise PreconditionError(
            f"{target}: must be a folder below {mounted}, which is {head}{remote} by the metadata of {source}"
        )
    return f"{head}{remote / there.relative_to(mounted)}"


def _is_local(head: str) -> bool:
    return head in ("file:", "file://", "rhino://file")


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # it is not on this machine
        return False
