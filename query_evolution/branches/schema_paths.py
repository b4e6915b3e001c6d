"""Makes the metadata of a copied checkpoint name the schema files of the copy, and not those of the original.

Spark would find the original's files, or, once they are deleted, none: it would then no longer compare the schemas of
state and code, and could not read state in Avro.
"""

from __future__ import annotations

import json
from pathlib import Path

from rhino_core import failpoints
from rhino_core.errors import IntegrityError, PreconditionError
from spark_connector import operator_metadata
from spark_connector.operator_metadata import SCHEMAS


def check_renamed(source: Path, target: Path, batch: int) -> None:
    """Raises PreconditionError if it is not clear how Spark names the schema files of `target`."""
    for operator in operator_metadata.operators(source):
        found = operator_metadata.newest(operator, batch)
        if found and (paths := operator_metadata.schema_paths(operator_metadata.read(found[1]))):
            operator_metadata.renamed_root(operator_metadata.root(paths[-1]), source, target)


def rename(source: Path, work: Path, target: Path, batch: int) -> None:
    """Rewrites the metadata in `work`, a copy of the checkpoint `source`, to become `target`.

    Metadata of batches after `batch` is deleted: the new query writes its own. Raises IntegrityError for a missing
    schema file, and PreconditionError if another file names `source`.
    """
    roots = set[str]()
    for operator in operator_metadata.operators(work):
        found = operator_metadata.newest(operator, batch)
        if found is None:
            continue
        for number, path in operator_metadata.versions(operator).items():
            if number <= found[0]:
                roots |= _rename_in(path, operator, source, target)
            else:
                path.unlink()
    _check_left(work / "state", roots)


def _rename_in(path: Path, operator: Path, source: Path, target: Path) -> set[str]:
    """Rewrites one version. Returns the names of checkpoints in it: more than one after `rhino moved`."""
    fields = operator_metadata.read(path)
    named = operator_metadata.schema_paths(fields)
    if not named:
        return set()
    new = operator_metadata.renamed_root(operator_metadata.root(named[-1]), source, target)

    def renamed(schema: str) -> str:
        file = operator_metadata.below(schema)
        if not (operator / SCHEMAS / file).is_file():
            raise IntegrityError(f"{path}: names the schema file {schema}, which is not in {source}")
        return operator_metadata.schema_path(new, int(operator.name), file)

    failpoints.hit("branch.schemas.before")
    operator_metadata.write(path, operator_metadata.described(fields, int(operator.name), renamed))
    failpoints.hit("branch.schemas.after")
    return {operator_metadata.root(schema) for schema in named}


def _check_left(state: Path, roots: set[str]) -> None:
    """Raises PreconditionError for a file that still names a former checkpoint: of a Spark unknown to Rhino."""
    texts = {text.encode() for root in roots for text in (f"{root}/state/", json.dumps(f"{root}/state/")[1:-1])}
    for path in state.rglob("*"):
        if path.is_file() and any(text in path.read_bytes() for text in texts):
            raise PreconditionError(
                f"{path.relative_to(state.parent)}: names the former checkpoint ({', '.join(sorted(roots))}) in a way "
                "that this version of Rhino does not know; the query cannot be branched"
            )
