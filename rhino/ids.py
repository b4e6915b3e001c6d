"""The vocabulary that every process shares; ARCHITECTURE.md ("Words") defines each term once."""

from __future__ import annotations

import enum
import functools
import re
from dataclasses import dataclass, field
from typing import NamedTuple

from rhino.errors import InvalidRequestError


class StoreId(NamedTuple):
    """One state store of one partition of one stateful operator."""

    job: str
    operator: int
    partition: int
    store: str

    @property
    def group(self) -> GroupId:
        return GroupId(self.job, self.operator, self.partition)

    def __str__(self) -> str:
        return f"{self.job}/{self.operator}/{self.partition}/{self.store}"


class GroupId(NamedTuple):
    """The replicated unit: all stores of one partition of one operator."""

    job: str
    operator: int
    partition: int

    def __str__(self) -> str:
        return f"{self.job}/{self.operator}/{self.partition}"


class Version(NamedTuple):
    """A store's version and the unique id of its checkpoint. Version 0 is empty and has no id."""

    version: int
    checkpoint_id: str

    def __str__(self) -> str:
        return f"{self.version}_{self.checkpoint_id}"


class StoreVersion(NamedTuple):
    store: StoreId
    version: Version

    def __str__(self) -> str:
        return f"{self.store}@{self.version}"


class Epoch(NamedTuple):
    """Group epoch: (manager generation, counter), ordered. Fences the membership of a group."""

    generation: int
    counter: int

    def __str__(self) -> str:
        return f"{self.generation}.{self.counter}"


NO_EPOCH = Epoch(0, 0)


class VirtualNode(NamedTuple):
    """Finest unit of a handover: all stores of a task group's operators in one partition."""

    job: str
    task_group: int
    partition: int

    @property
    def name(self) -> str:
        """`<task group>/<partition>`, as users write it."""
        return f"{self.task_group}/{self.partition}"


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker in one incarnation. `peer_address` is "host:port" of its sidecar's peer service."""

    worker_id: str
    incarnation: str
    host: str
    peer_address: str


@dataclass(frozen=True, slots=True)
class Member:
    worker: Worker
    whole: bool


class BelowMinCopies(enum.Enum):
    """What a commit does while fewer than min_copies members are whole."""

    DEGRADED = "degraded"
    BLOCK = "block"


class Durability(enum.Enum):
    """Where a member must have a version before it counts: REPLICATED: in its page cache; SYNCED: on its disk."""

    REPLICATED = "replicated"
    SYNCED = "synced"


class Placement(enum.Enum):
    """STATE: every member has all of the state. BLOCK: its files are spread over the members (a baseline)."""

    STATE = "state"
    BLOCK = "block"


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What a job asks of replication. `min_copies` None means min(2, replication_factor + 1)."""

    replication_factor: int = 1
    min_copies: int | None = None
    below_min_copies: BelowMinCopies = BelowMinCopies.DEGRADED
    durability: Durability = Durability.REPLICATED
    placement: Placement = Placement.STATE

    def __post_init__(self) -> None:
        if self.replication_factor < 0:
            raise InvalidRequestError(f"replication factor {self.replication_factor}: must be 0 or more")
        if self.min_copies is not None and not 1 <= self.min_copies <= self.replication_factor + 1:
            raise InvalidRequestError(
                f"min copies {self.min_copies}: must be between 1 and replication factor + 1 = "
                f"{self.replication_factor + 1}"
            )

    @property
    def copies(self) -> int:
        """The effective min_copies."""
        return min(2, self.replication_factor + 1) if self.min_copies is None else self.min_copies


@dataclass(frozen=True, slots=True)
class ReplicaGroup:
    """The owner (first member) and the ordered chain of secondaries (Rhino 4.2.2, phase 1)."""

    group: GroupId
    epoch: Epoch
    members: tuple[Member, ...]
    required_copies: int
    settings: JobSettings = field(default_factory=JobSettings)

    @property
    def owner(self) -> Worker:
        return self.members[0].worker

    def member(self, worker_id: str) -> Member | None:
        return next((m for m in self.members if m.worker.worker_id == worker_id), None)


class DiskState(enum.Enum):
    """Whether a worker's disk takes new files. FAILING stays until its sidecar is started again."""

    OK = "ok"
    FULL = "full"  # less than reserve_bytes free
    FAILING = "failing"  # a write, a read or the index has failed


class FileKind(enum.Enum):
    CHANGELOG = "changelog"
    SNAPSHOT = "snapshot"
    SST = "sst"
    LOG = "log"

    @property
    def versioned(self) -> bool:
        return self in (FileKind.CHANGELOG, FileKind.SNAPSHOT)


class Lane(enum.Enum):
    """COMMIT: changelogs and zips, somebody waits. BULK: data files, which may never delay the commit lane."""

    COMMIT = "commit"
    BULK = "bulk"


class Source(enum.Enum):
    """Where a prepared version's files came from; ordered from best to worst in a virtual node."""

    EMPTY = "empty"
    LOCAL = "local"
    REPLICA = "replica"
    REMOTE = "remote"


_ID = r"[0-9A-Za-z-]{1,64}"
_VERSIONED = re.compile(rf"^(0|[1-9][0-9]{{0,17}})_({_ID})\.(changelog|zip)\Z")
_DATA = re.compile(r"^(SSTs|logs)/[0-9]{1,18}-[0-9A-Za-z-]{1,64}\.(sst|log)\Z")
_SAFE = re.compile(r"^[0-9A-Za-z][0-9A-Za-z._-]{0,127}\Z")


class ParsedName(NamedTuple):
    kind: FileKind
    version: Version | None

    @property
    def lane(self) -> Lane:
        return Lane.BULK if self.version is None else Lane.COMMIT


@functools.lru_cache(maxsize=1 << 16)
def parse_name(name: str) -> ParsedName:
    """Kind and, for changelogs and snapshots, version of a file name below a store's root.

    Raises InvalidRequestError for any name outside the grammar; so a name can never leave its folder.
    """
    if match := _VERSIONED.match(name):
        kind = FileKind.CHANGELOG if match[3] == "changelog" else FileKind.SNAPSHOT
        return ParsedName(kind, Version(int(match[1]), match[2]))
    if match := _DATA.match(name):
        if (match[1], match[2]) == ("SSTs", "sst"):
            return ParsedName(FileKind.SST, None)
        if (match[1], match[2]) == ("logs", "log"):
            return ParsedName(FileKind.LOG, None)
    raise InvalidRequestError(
        f"file name {name!r}: expected <version>_<id>.changelog, <version>_<id>.zip, SSTs/<n>-<id>.sst or "
        "logs/<n>-<id>.log (checkpoint format 2; format 1 has no ids and is refused)"
    )


def check_store(store: StoreId) -> StoreId:
    """The store itself; raises InvalidRequestError unless its parts are safe as folder names."""
    if not _SAFE.match(store.job) or not _SAFE.match(store.store) or store.operator < 0 or store.partition < 0:
        raise InvalidRequestError(f"store {store}: job and store name may have letters, digits, '.', '_' and '-' only")
    return store


@dataclass(frozen=True, slots=True)
class FileEntry:
    """An immutable file of a store; (store, name) has one checksum forever."""

    store: StoreId
    name: str
    size_bytes: int
    crc32c: int
    lineage: tuple[Version, ...] = ()  # changelogs: versions before this one, oldest first
    references: tuple[str, ...] = ()  # snapshots: names of the data files the zip lists
    written_by: str = ""  # worker_id whose executor wrote it
    same_as: str = ""  # data files: name of the first file of the store that had these very bytes, if another

    @property
    def content(self) -> str:
        """The same for files of a store that have the very same bytes by the word of who wrote them."""
        return self.same_as or self.name

    @property
    def kind(self) -> FileKind:
        return parse_name(self.name).kind

    @property
    def version(self) -> Version | None:
        return parse_name(self.name).version

    @property
    def lane(self) -> Lane:
        return parse_name(self.name).lane
