"""What the fuzzer feeds: the parsers of files beside and in query checkpoints, and of local sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from query_evolution.modify.comparison import Comparison
from query_evolution.modify.folder import ModificationFolder
from query_evolution.rebuilds.folder import without_watermark
from query_evolution.replace.folder import RestartFolder
from query_evolution.shadows.outputs import FileSink
from query_evolution.shadows.report import Results
from query_evolution.structure.alignment import Choices
from query_evolution.structure.folder import examine
from query_evolution.structure.operators import METADATA, SCHEMA, read_operators
from query_evolution.structure.rebuilt import entry_rows, origin_of
from query_evolution.structure.schemas import parse_families, parse_schema
from rhino_core.errors import RhinoError
from spark_connector import operator_metadata
from spark_connector.facts import replace_file
from spark_connector.jar_place import jar_setting
from spark_connector.local.directory import LocalDirectory
from spark_connector.query_checkpoint import QueryCheckpoint
from spark_connector.run_locks import RIGHT
from spark_connector.takeover import former_stores, switch

SEPARATOR = b"\n--\n"  # between the files of one example
ID = b'{"id": "5b1f0c3e-9a3f-4d5a-8a35-1d5a3a1f0c3e"}'


def modifications(data: bytes, folder: Path) -> None:
    """A file of each kind, all about record 1 and batch 1."""
    root = folder / "modifications"
    _write(data, (root / kind / "1" for kind in ("records", "outcomes", "bindings", "returns", "figures")))
    ModificationFolder(folder).read().views()


def comparisons(data: bytes, folder: Path) -> None:
    Comparison.from_json(data.decode(errors="surrogateescape"))


def restarts(data: bytes, folder: Path) -> None:
    found = RestartFolder(folder)
    _write(data, (found.path / kind / "1" for kind in ("requests", "answers", "ends")))
    replace_file(found.lock(RIGHT), data)
    _each(found.read, found.owner, found.owner_is_supervised, lambda: found.asked(1))


def operators(data: bytes, folder: Path) -> None:
    """Metadata of both kinds, with a schema file."""
    state = folder / "state"
    _write(data, (state / "0" / METADATA, state / "0" / "0" / SCHEMA, state / "1" / operator_metadata.VERSIONS / "3"))
    (folder / "metadata").write_bytes(ID)
    _each(
        lambda: read_operators(folder),
        lambda: operator_metadata.read(state / "1" / operator_metadata.VERSIONS / "3"),
        lambda: former_stores.prefix_columns(QueryCheckpoint(folder), 0),
        lambda: parse_families(data),
        lambda: parse_schema(data),
    )


def offsets(data: bytes, folder: Path) -> None:
    """Entries of the offset log, as commands read them."""
    (folder / "metadata").write_bytes(ID)
    (folder / "state").mkdir(exist_ok=True)
    _write(data, (folder / "offsets" / "3", folder / "commits" / "3"))
    checkpoint = QueryCheckpoint(folder)
    _each(
        lambda: without_watermark(data),
        lambda: entry_rows(folder / "offsets" / "3"),
        lambda: former_stores.former_stores(checkpoint),
        lambda: checkpoint.rewrite_provider("a", "b"),
        lambda: checkpoint.commit_with_ids(3, {}),
        lambda: examine(checkpoint, folder, None, Choices()),
    )


def notes(data: bytes, folder: Path) -> None:
    """Small files of commands in a checkpoint, and what a shadow has found."""
    (folder / "metadata").write_bytes(ID)
    checkpoint, results = QueryCheckpoint(folder), folder / "shadow"
    sink = folder / "_spark_metadata" / "3"
    _write(data, (results / "3", results / "failure", folder / "rebuilt", folder / switch.NOTE, sink))
    _each(
        Results(checkpoint).report,
        lambda: origin_of(folder),
        lambda: switch.unfinished(checkpoint),
        lambda: FileSink(folder).paths(3),
    )


def sessions(data: bytes, folder: Path) -> None:
    replace_file(folder / "state" / "running.json", data)
    LocalDirectory(folder / "state").running()


def jar_places(data: bytes, folder: Path) -> None:
    jar_setting(data.decode(errors="surrogateescape"))


def _write(data: bytes, paths: Iterable[Path]) -> None:
    """The parts of the example are the files. The last one counts for all that follow."""
    parts = data.split(SEPARATOR)
    for number, path in enumerate(paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, parts[min(number, len(parts) - 1)])


def _each(*reads: Callable[[], object]) -> None:
    for read in reads:
        try:
            read()
        except RhinoError:
            continue


FACT_TARGETS = (modifications, comparisons, restarts, operators, offsets, notes, sessions, jar_places)
PART_TARGETS = {target.__name__ for target in FACT_TARGETS} | {"checkpoints"}
