"""Examines a checkpoint: its damage, and the newest batch that opens. No I/O but through Files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from rhino_core.text import count
from spark_connector.doctor.checksums import is_sum, subject
from spark_connector.doctor.files import Files
from spark_connector.doctor.finding import Finding, Severity
from spark_connector.doctor.layout import Place, Store, gaps
from spark_connector.doctor.query import Query, Reason
from spark_connector.doctor.versions import Opening, references

LIVE_S = 60.0  # a query whose logs changed less than this ago may be running
_REPAIR = "restore the file from a backup, or go on from a copy: --repair-into FOLDER"
_DROP = "--repair-into FOLDER makes a copy without it"
_SOURCE = "restore the file from a backup: without it, the source would begin from other rows"
_LOST = "nothing, unless you need to go back to an older batch"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`opens`: the newest batch that opens, at least in a repaired copy. -1: only the very beginning. None: none.

    `as_it_is`: stock Spark opens the newest batch of the checkpoint as it lies there, also an older Spark without
    repairs of its own. `state`: by store, what the batch `opens` needs.
    """

    query: Query
    findings: tuple[Finding, ...]
    opens: int | None
    state: dict[Place, Opening]

    @property
    def as_it_is(self) -> bool:
        worst = {finding.severity for finding in self.findings}
        return self.opens == self.query.newest_commit and not worst & {Severity.BLOCKS, Severity.WEAKENS}

    @property
    def damaged(self) -> bool:
        return any(finding.severity is not Severity.NOTE for finding in self.findings)

    @property
    def state_bytes(self) -> int:
        files = self.query.files
        return sum(files[name].size_bytes for opening in self.state.values() for name in opening.files)


def first_look(files: Files) -> Diagnosis:
    """Looks at the logs, and at the files that the newest batch needs. Compares data files by their sizes only.

    Raises UnknownError for anything but a query checkpoint, and the errors of a store that does not answer.
    """
    files.deep = False
    return _diagnosis(Query(files), files)


def whole_look(files: Files) -> Diagnosis:
    """Like `first_look`, and reads every file."""
    files.deep = True
    query = Query(files)
    stores = () if query.in_rhino else query.layout.stores.values()
    files.read_all(name for store in stores for name in (*store.written(), *store.data))
    return _diagnosis(query, files)


def _diagnosis(query: Query, files: Files) -> Diagnosis:
    newest = query.newest_commit
    against = query.reasons(newest) if newest >= 0 else query.reasons(-1)
    opens = next((batch for batch in _candidates(query) if _open(query, batch)), None)
    state = query.openings(opens) if opens is not None and opens >= 0 else {}
    findings: dict[tuple[str, str], Finding] = {}
    for finding in (*_findings(query, files, against), *_checksums(query, files, state)):
        findings.setdefault((finding.file, finding.text), finding)
    order = list(Severity)
    ordered = sorted(findings.values(), key=lambda found: (order.index(found.severity), found.file))
    return Diagnosis(query, tuple(ordered), opens, state)


def _candidates(query: Query) -> Iterator[int]:
    yield from sorted(query.commits, reverse=True)
    if 0 in query.offsets:
        yield -1


def _open(query: Query, batch: int) -> bool:
    return all(reason.skipped for reason in query.reasons(batch))


def _findings(query: Query, files: Files, against: list[Reason]) -> Iterator[Finding]:
    """Yields the same damage once or more, the worst first."""
    yield from _of_query(query, files)
    yield from _of_logs(query, files)
    for reason in against:
        yield _of_reason(query, reason)
    yield from _of_descriptions(query, files)
    yield from _of_older(query, files)
    yield from _notes(query, files)


def _of_query(query: Query, files: Files) -> Iterator[Finding]:
    problem = files.fact("metadata").problem
    if problem:
        way_out = f"{_REPAIR}. A lost id becomes a new one: sinks that skip repeated batches by query id do not know it"
        yield Finding(Severity.BLOCKS, "metadata", problem, way_out)
    if query.newest_offset < query.newest_commit:
        text = f"batch {query.newest_commit} is committed, and the offset log ends with batch {query.newest_offset}"
        yield Finding(Severity.BLOCKS, f"offsets/{query.newest_commit}", text, _REPAIR, query.newest_commit)
    if query.newest_offset > query.newest_commit + 1:
        severity = Severity.BLOCKS if query.format == 2 else Severity.WEAKENS
        text = f"is missing: the commit log ends with batch {query.newest_commit}, and {query.newest_offset} has begun"
        yield Finding(severity, f"commits/{query.newest_commit + 1}", text, _REPAIR, query.newest_commit + 1)


def _of_logs(query: Query, files: Files) -> Iterator[Finding]:
    needed = _logs_needed(query)
    for log, names in (("offsets", query.layout.offsets), ("commits", query.layout.commits)):
        wrong = {batch: files.fact(name).problem for batch, name in names.items()}
        wrong |= query.unfit if log == "offsets" else {}
        for first, last in gaps(names):
            text = "is missing" + (f", as all from batch {first} on" if first < last else "")
            if query.places or query.in_rhino:
                wrong[last] = text
            else:
                way_out = "nothing, with asynchronous progress tracking: it logs some batches only"
                yield Finding(Severity.NOTE, f"{log}/{last}", text, way_out, last)
        for batch, problem in wrong.items():
            if problem:
                blocks = f"{log}/{batch}" in needed
                severity = Severity.BLOCKS if blocks else Severity.OLDER
                yield Finding(severity, f"{log}/{batch}", problem, _REPAIR if blocks else _LOST, batch)


def _logs_needed(query: Query) -> set[str]:
    """Spark reads the newest commit, and the two newest entries of the offset log."""
    return {f"offsets/{query.newest_offset - back}" for back in (0, 1)} | {f"commits/{query.newest_commit}"}


def _of_reason(query: Query, reason: Reason) -> Finding:
    goes_around = reason.skipped and not reason.unseen
    severity = Severity.WEAKENS if goes_around else Severity.BLOCKS
    way_out = _SOURCE if reason.file.startswith("sources/") else _REPAIR
    if goes_around:
        way_out = f"Spark 4.1 and later goes around it by itself; {_DROP}, for every Spark"
    operator, partition, store = reason.place or (-1, -1, "")
    text = reason.text
    if reason.place in query.places and reason.place not in query.layout.stores:
        text = f"{text}: nothing of this store is left"
        way_out += "" if query.layout.stores else "; with a checkpointLocation on rhino://, the state is in Rhino"
    return Finding(severity, reason.file, text, way_out, query.newest_commit, operator, partition, store)


def _of_descriptions(query: Query, files: Files) -> Iterator[Finding]:
    """Schemas and metadata of operators. Spark writes those of format 1 again when they are missing."""
    for operator in range(max(query.layout.operators, default=-1) + 1):
        versions = query.layout.metadata.get(operator, {})
        name = f"state/{operator}/_metadata/metadata"
        if not versions:
            text = "is missing: the operator is not described" + (
                "" if operator in query.layout.operators else " at all"
            )
            yield Finding(Severity.WEAKENS, name, text, "Spark writes it again with the next start", -1, operator)
        for batch, path in versions.items():
            if problem := files.fact(path).problem:
                severity, way_out = (Severity.BLOCKS, _REPAIR) if batch >= 0 else (Severity.WEAKENS, _DROP)
                yield Finding(severity, path, problem, way_out, batch, operator)
    described = {name.rpartition("/_metadata/")[0] for name in query.layout.schemas}
    for name in query.layout.schemas:
        if problem := files.fact(name).problem:
            operator = int(name.split("/")[1])
            yield Finding(Severity.BLOCKS, name, problem, f"{_DROP}; Spark writes it again", -1, operator)
    for place, store in query.layout.stores.items():
        by_batch = -1 not in query.layout.metadata.get(place[0], {-1: ""})
        if place[1] == 0 and not by_batch and store.folder not in described:
            name, way_out = f"{store.folder}/_metadata/schema", "Spark writes it again with the next start"
            yield Finding(Severity.WEAKENS, name, "is missing", way_out, -1, *place)


def _of_older(query: Query, files: Files) -> Iterator[Finding]:
    for place, store in query.layout.stores.items() if not query.in_rhino else ():
        for names in (store.changes, store.snapshots):
            for version, name in names.items():
                fact = files.examined().get(name)
                if fact is not None and fact.problem:
                    yield Finding(Severity.OLDER, name, fact.problem, _LOST, version.version - 1, *place)
        for name in store.data:
            fact = files.examined().get(name)
            if fact is not None and fact.problem:
                yield Finding(Severity.OLDER, name, fact.problem, _LOST, -1, *place)
        yield from _gaps(place, store)


def _gaps(place: Place, store: Store) -> Iterator[Finding]:
    for first, last in gaps({version.version for version in (*store.changes, *store.snapshots)}):
        what = f"version {first} is" if first == last else f"versions {first} to {last} are"
        text = f"{what} missing, and older and newer ones are there"
        yield Finding(Severity.OLDER, store.folder, text, _LOST, last - 1, *place)


def _checksums(query: Query, files: Files, state: dict[Place, Opening]) -> Iterator[Finding]:
    needed = {name for opening in state.values() for name in opening.files}
    needed |= {"metadata", *query.layout.sources, *_logs_needed(query), *query.layout.schemas}
    needed |= {name for found in query.layout.metadata.values() for name in found.values()}
    for name, fact in list(files.examined().items()):
        for found in fact.wrong_sums:
            # Spark's usual file manager on a local file system does not compare Hadoop's checksums.
            severity = Severity.BLOCKS if found.by_spark else Severity.WEAKENS
            severity = severity if name in needed else Severity.OLDER
            yield Finding(severity, found.file, found.text, f"delete it: Spark reads {name} without it; or {_DROP}")


def _notes(query: Query, files: Files) -> Iterator[Finding]:
    changed_s = max(files[n].changed_s for log in (query.layout.offsets, query.layout.commits) for n in log.values())
    if time.time() - changed_s < LIVE_S:
        text = "the logs changed within the last minute: a query that runs deletes files while they are looked at"
        yield Finding(Severity.NOTE, "", text, "stop the query and look again, if something is said to be missing")
    if query.in_rhino:
        yield Finding(
            Severity.NOTE, "", "the state is in Rhino, and not in the checkpoint", "rhino status; rhino verify"
        )
    elif not query.layout.stores:
        text = "there is no state: the query has no stateful operator, or all of its state is lost"
        yield Finding(Severity.NOTE, "state", text, _REPAIR)
    if query.newest_offset == query.newest_commit + 1:
        text = f"batch {query.newest_offset} has begun and is not committed: it is computed again"
        yield Finding(Severity.NOTE, f"offsets/{query.newest_offset}", text, "nothing")
    if query.layout.temporary:
        text = f"{count(len(query.layout.temporary), 'file')} of unfinished writes, such as {query.layout.temporary[0]}"
        yield Finding(Severity.NOTE, "", text, "delete them when the query has stopped")
    orphans = [name for name in files.listed if is_sum(name) and subject(name) not in files]
    if orphans:
        text = f"{count(len(orphans), 'checksum file')} of files that are gone, such as {orphans[0]}"
        yield Finding(Severity.NOTE, "", text, "nothing; Spark deletes them in time")
    if unproven := files.unproven():
        text = f"nothing proves the content of {count(len(unproven), 'file')}, such as {unproven[0]}"
        yield Finding(Severity.NOTE, "", text, files.fact(unproven[0]).unproven)
    unnamed = _unnamed(query, files)
    if files.deep and unnamed:
        text = f"{count(len(unnamed), 'data file')} that no snapshot names, such as {unnamed[0]}"
        yield Finding(Severity.NOTE, "", text, "nothing; Spark deletes them in time")


def _unnamed(query: Query, files: Files) -> list[str]:
    found = []
    for store in query.layout.stores.values():
        readable = [n for n in store.snapshots.values() if n in files.examined() and not files.fact(n).problem]
        named = {path for name in readable for path, _ in references(store, name, files)}
        found += [name for name in store.data if name not in named]
    return found
