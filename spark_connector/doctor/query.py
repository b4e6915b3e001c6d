"""The query of a checkpoint: its logs, its stores, and the version of each that a batch needs. Reads only by Files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rhino_core.errors import UnknownError
from rhino_core.ids import Version
from spark_connector.conf import PROVIDER_CLASSES
from spark_connector.doctor.content import PARTITIONS_MAX, OffsetEntry
from spark_connector.doctor.files import Files
from spark_connector.doctor.layout import Layout, Place, Store, layout_of, store_folder
from spark_connector.doctor.versions import Obstacle, Opening, open_version
from spark_connector.query_checkpoint import DEFAULT_STORE, JOIN_STORES, PROVIDER_KEY
from spark_connector.query_logs import CommittedBatch
from spark_connector.takeover.files import CODEC_KEY
from spark_connector.takeover.former_stores import PARTITIONS_KEYS
from spark_connector.takeover.hdfs_state import HDFS_PROVIDER

RHINO = PROVIDER_CLASSES["provider"]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a batch does not open. `place`: None for the query as a whole. The others: see Obstacle."""

    file: str
    text: str
    place: Place | None = None
    skipped: bool = False
    unseen: bool = False


class Query:
    """The readable entries of both logs, and the stores that the query must have.

    `unfit`: readable entries of the offset log that contradict the others, with the reason.
    """

    def __init__(self, files: Files) -> None:
        """Raises UnknownError for a folder without any part of a query checkpoint."""
        self.files = files
        self.layout: Layout = layout_of(files.listed)
        if not (self.layout.offsets or self.layout.commits):
            raise UnknownError(
                f"{files.tree.location}: no query checkpoint: it has neither offsets nor commits; give the "
                "checkpointLocation of the query"
            )
        files.read_all([*self.layout.offsets.values(), *self.layout.commits.values(), "metadata"])
        self.unfit: dict[int, str] = {}
        self.offsets: dict[int, OffsetEntry] = self._readable(self.layout.offsets)
        self.commits: dict[int, CommittedBatch] = self._readable(self.layout.commits)
        self.newest_offset = max(self.layout.offsets, default=-1)
        self.newest_commit = max(self.layout.commits, default=-1)
        self._judge_offsets()
        conf = self.conf
        self.provider = conf.get(PROVIDER_KEY, "")
        files.codec = conf.get(CODEC_KEY, "lz4").rpartition(".")[2].lower().replace("compressioncodec", "")
        self.format = 2 if any(batch.ids for batch in self.commits.values()) else 1
        files.read_all(
            [*(name for found in self.layout.metadata.values() for name in found.values()), *self.layout.schemas]
        )
        files.read_all(self.layout.sources)
        self.places = [] if self.in_rhino else self._expected()
        self._name_versions()

    @property
    def conf(self) -> dict[str, str]:
        """The settings of the newest readable batch."""
        return self.offsets[max(self.offsets)].conf if self.offsets else {}

    @property
    def in_rhino(self) -> bool:
        """Whether the state is in Rhino: by the provider, or by schema files named on rhino://."""
        facts = [self.files.fact(name) for found in self.layout.metadata.values() for name in found.values()]
        described = [store for fact in facts if not fact.problem for store in fact.value["stateStoreInfo"]]
        paths = [path for store in described for path in store.get("stateSchemaFilePaths", ())]
        return self.provider == RHINO or any(path.startswith("rhino:") for path in paths)

    def store(self, place: Place) -> Store:
        return self.layout.stores.get(place) or Store(place, store_folder(place))

    def keeps_planned(self, batch: int) -> bool:
        """Whether the batch after this one keeps its offsets, so that it is computed again with the same rows."""
        return batch + 1 in self.offsets

    def reasons(self, batch: int) -> list[Reason]:
        """Returns why Spark could not go on after this batch, if the later ones were gone. -1: start with batch 0.

        Reasons with `skipped` do not keep the batch from opening.
        """
        found = self._log_reasons(batch)
        if batch < 0:
            return found
        found += self._description_reasons(batch)
        if batch in self.commits:
            for place, opening in self.openings(batch).items():
                found += [Reason(o.file, o.text, place, o.skipped, o.unseen) for o in opening.obstacles]
        return found

    def openings(self, batch: int) -> dict[Place, Opening]:
        """Returns, for each store, whether the version after this committed batch opens."""

        def opened(place: Place) -> Opening:
            store = self.store(place)
            version, reason = self.version(place, batch)
            if version is None:
                return Opening(False, (), (reason,))
            return open_version(store, version, self.files)

        return dict(zip(self.places, self.files.each(opened, self.places), strict=True))

    def version(self, place: Place, batch: int) -> tuple[Version | None, Obstacle]:
        """Returns the version of a store after a batch. None: the commit log does not name it, as the obstacle says."""
        operator, partition, name = place
        ids = self.commits[batch].ids
        if not ids:
            return Version(batch + 1, ""), Obstacle("", "")
        names = JOIN_STORES if len(ids.get((operator, partition), ())) == len(JOIN_STORES) else (DEFAULT_STORE,)
        found = dict(zip(names, ids.get((operator, partition), ()), strict=False))
        if name not in found:
            return None, Obstacle(self.layout.commits[batch], f"names no checkpoint id of store {name}")
        return Version(batch + 1, found[name]), Obstacle("", "")

    def metadata_at(self, operator: int, batch: int) -> str:
        """Returns the file that describes the operator at the end of a batch; empty if none does."""
        found = self.layout.metadata.get(operator, {})
        return found[max(fitting)] if (fitting := [number for number in found if number <= batch]) else ""

    def _readable(self, log: dict[int, str]) -> dict[int, Any]:
        return {batch: fact.value for batch, name in log.items() if not (fact := self.files.fact(name)).problem}

    def _judge_offsets(self) -> None:
        """Sets entries aside that name fewer sources than before, or a provider that did not write the state."""
        written = (name for store in self.layout.stores.values() for name in store.written())
        hdfs = {name.endswith((".delta", ".snapshot")) for name in written}
        sources = 0
        for batch, entry in sorted(self.offsets.items()):
            provider, before, sources = entry.conf.get(PROVIDER_KEY, ""), sources, entry.sources
            if sources < before:
                self.unfit[batch] = "names fewer sources than the entry before"
            elif len(hdfs) == 1 and provider and (provider == HDFS_PROVIDER) not in hdfs and provider != RHINO:
                self.unfit[batch] = f"names the provider {provider}, and another one has written the state"
        if len(self.unfit) < len(self.offsets):
            self.offsets = {batch: entry for batch, entry in self.offsets.items() if batch not in self.unfit}

    def _log_reasons(self, batch: int) -> list[Reason]:
        stateful = self.places or self.in_rhino  # others may track their progress asynchronously, with gaps
        wanted = {batch} if self.keeps_planned(batch) or batch == 0 or not stateful else {batch, batch - 1}
        if batch < 0:
            wanted = {0}
        found = [self._offset_reason(number) for number in sorted(wanted) if number not in self.offsets]
        if batch >= 0 and batch not in self.commits:
            name = self.layout.commits.get(batch, f"commits/{batch}")
            found.append(Reason(name, self.files.fact(name).problem or "is missing"))
        return found + self._source_reasons()

    def _offset_reason(self, batch: int) -> Reason:
        name = self.layout.offsets.get(batch, f"offsets/{batch}")
        return Reason(name, self.unfit.get(batch) or self.files.fact(name).problem)

    def _source_reasons(self) -> list[Reason]:
        facts = ((name, self.files.fact(name)) for name in self.layout.sources)
        return [Reason(name, fact.problem) for name, fact in facts if fact.problem]

    def _description_reasons(self, batch: int) -> list[Reason]:
        """Spark writes lost descriptions anew from the query, but for those kept by batch."""
        found = []
        for operator, versions in self.layout.metadata.items():
            if -1 in versions:
                continue
            name = self.metadata_at(operator, batch)
            fact = self.files.fact(name or f"state/{operator}/_metadata/v2/{batch}")
            if fact.problem:
                found.append(Reason(name or f"state/{operator}/_metadata/v2", fact.problem, (operator, -1, "")))
                continue
            for path in self.schema_files(operator, name):
                if problem := self.files.fact(path).problem:
                    found.append(Reason(path, problem, (operator, -1, "")))
        return found

    def schema_files(self, operator: int, metadata: str) -> list[str]:
        """Returns the schema files that an operator's metadata names, below the checkpoint."""
        fields = self.files.fact(metadata).value
        paths = [path for store in fields["stateStoreInfo"] for path in store.get("stateSchemaFilePaths", ())]
        return [f"state/{operator}/_stateSchema/{path.rpartition('/_stateSchema/')[2]}" for path in paths]

    def _expected(self) -> list[Place]:
        ids = next((self.commits[b].ids for b in sorted(self.commits, reverse=True) if self.commits[b].ids), {})
        operators = {operator for operator, _ in ids} | self.layout.operators
        return [
            (operator, partition, name)
            for operator in range(max(operators, default=-1) + 1)
            for names, partitions in [self._described(operator, ids)]
            for partition in range(partitions)
            for name in names
        ]

    def _described(self, operator: int, ids: Mapping[tuple[int, int], tuple[str, ...]]) -> tuple[tuple[str, ...], int]:
        """Returns the names of the operator's stores, and its number of partitions, from the best source left."""
        places = [place for place in self.layout.stores if place[0] == operator]
        listed = {place[2] for place in places}
        for name in sorted(self.layout.metadata.get(operator, {}).values(), reverse=True):
            if not (fact := self.files.fact(name)).problem:
                stores = fact.value["stateStoreInfo"]
                names = tuple(dict.fromkeys(str(store["storeName"]) for store in stores))
                names = names if not listed or listed & {*names} else tuple(sorted(listed))
                return names, max(int(store["numPartitions"]) for store in stores)
        named = {key: value for key, value in ids.items() if key[0] == operator}
        if named:
            return (JOIN_STORES if len(next(iter(named.values()))) > 1 else (DEFAULT_STORE,)), len(named)
        partitions = max((place[1] for place in places), default=0) + 1
        if partitions > 1 or not places:
            known = next((self.conf[key] for key in PARTITIONS_KEYS if key in self.conf), "")
            if known.isdigit() and int(known) <= PARTITIONS_MAX:
                partitions = max(partitions, int(known))
        return tuple(sorted(listed)) or (DEFAULT_STORE,), partitions

    def _name_versions(self) -> None:
        for batch in self.commits:
            for place in self.places if self.commits[batch].ids else ():
                version, _ = self.version(place, batch)
                if version is not None and place in self.layout.stores:
                    self.layout.stores[place].logged[version.version] = version
