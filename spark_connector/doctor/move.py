"""The needs of a move of the query to Rhino. No I/O."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from spark_connector.conf import PROVIDER_CLASSES
from spark_connector.doctor.examine import Diagnosis
from spark_connector.doctor.query import RHINO, Query
from spark_connector.takeover.hdfs_state import HDFS_PROVIDER

_KNOWN = {PROVIDER_CLASSES["checkpoint"]: "RocksDB", HDFS_PROVIDER: "HDFS-backed", "": "HDFS-backed", RHINO: "Rhino"}


@dataclass(frozen=True, slots=True)
class Move:
    """`command`: for the node of a worker. `blockers`: what has to be done first. `notes`: what it needs there."""

    command: str
    state_bytes: int
    blockers: tuple[str, ...]
    notes: tuple[str, ...]


def provider_name(query: Query) -> str:
    """Returns a short name of the state store provider, or its class."""
    return _KNOWN.get(query.provider, query.provider)


def move_of(diagnosis: Diagnosis) -> Move | None:
    """Returns None if there is nothing to move: no state, or state in Rhino."""
    query = diagnosis.query
    if query.in_rhino or not query.layout.stores:
        return None
    location = query.files.tree.location
    transforms = any("transformWithState" in name for name in _operators(query))
    converts = query.provider != PROVIDER_CLASSES["checkpoint"] or query.format == 1
    words = ["rhino", "adopt", "FOLDER" if "://" in location else location]
    words += ["--to-format", "2"] if converts else []
    words += ["--integration", "checkpoint"] if transforms else []
    hdfs = provider_name(query) == "HDFS-backed"
    notes = ["Java and Spark on that node, which converts the state with Spark's own providers"] if hdfs else []
    return Move(shlex.join(words), diagnosis.state_bytes, tuple(_blockers(diagnosis, location)), tuple(notes))


def _operators(query: Query) -> set[str]:
    facts = [query.files.fact(name) for found in query.layout.metadata.values() for name in found.values()]
    return {str(fact.value["operatorInfo"].get("operatorName", "")) for fact in facts if not fact.problem}


def _blockers(diagnosis: Diagnosis, location: str) -> list[str]:
    query = diagnosis.query
    found = []
    if query.provider not in _KNOWN:
        found.append(f"the provider {query.provider}: only state of Spark's own providers can be adopted")
    if diagnosis.opens is None or diagnosis.opens < 0:
        found.append("no committed batch opens")
    elif not diagnosis.as_it_is:
        found.append("the damage above: adopt the repaired copy")
    if "://" in location:
        found.append(f"{location} is no folder: copy it into one that the workers' node sees, then adopt that")
    if query.files.codec != "lz4" and any(store.changes for store in query.layout.stores.values()):
        found.append(f"changelogs compressed with {query.files.codec}: run one batch without changelogs first")
    return found
