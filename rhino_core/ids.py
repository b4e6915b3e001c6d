"""The common vocabulary of all processes. docs/concepts.md ("All words") defines each term."""

from __future__ import annotations

import enum
import functools
import ipaddress
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rhino_core.errors import InvalidRequestError


class StoreId(NamedTuple):
    """One state store of one partition of one stateful operator."""

    job: str
    operator: int
    partition: int
    store: str

    @property
    def group(self) -> GroupId:
        return tuple.__new__(GroupId, self[:3])  # same result as the constructor, but faster: commits call this often

    def __str__(self) -> str:
        return f"{self.job}/{self.operator}/{self.partition}/{self.store}"


class GroupId(NamedTuple):
    """The unit of replication: all stores of one partition of one operator."""

    job: str
    operator: int
    partition: int

    def __str__(self) -> str:
        return f"{self.job}/{self.operator}/{self.partition}"


class Version(NamedTuple):
    """A store's version number and the unique id of its checkpoint. Version 0 is empty and has no id."""

    version: int
    checkpoint_id: str

    def __str__(self) -> str:
        return f"{self.version}_{self.checkpoint_id}"


class StoreVersion(NamedTuple):
    store: StoreId
    version: Version

    def __str__(self) -> str:
        return f"{self.store}@{self.version}"


PROCESS_BITS, COUNT_BITS = 20, 32  # bits of an epoch's counter: process number, epochs issued


class Epoch(NamedTuple):
    """Epoch of a group: (manager generation, counter), ordered. It fences the membership of the group.

    The upper bits of the counter are the process number. A manager process draws it at random. So two managers with the
    same generation never issue the same epoch.
    """

    generation: int
    counter: int

    def __str__(self) -> str:
        return f"{self.generation}.{self.counter & ((1 << COUNT_BITS) - 1)}"


NO_EPOCH = Epoch(0, 0)
COUNTER_MAX = (1 << (PROCESS_BITS + COUNT_BITS)) - 1


class VirtualNode(NamedTuple):
    """The finest unit of a handover: all stores of a task group's operators in one partition."""

    job: str
    task_group: int
    partition: int

    @property
    def name(self) -> str:
        """`<task group>/<partition>`, the notation for users."""
        return f"{self.task_group}/{self.partition}"


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker with one incarnation. `peer_address` is "host:port" of its sidecar's peer service.

    `zone` and `rack`: its place; empty: unknown. Only registrations and the manager's record of the worker have them,
    members of groups have not. So workers are equal without them.
    """

    worker_id: str
    incarnation: str
    host: str
    peer_address: str
    zone: str = field(default="", compare=False, repr=False)
    rack: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Member:
    worker: Worker
    whole: bool


class BelowMinCopies(enum.Enum):
    """Behaviour of a commit while fewer than min_copies members are whole."""

    DEGRADED = "degraded"
    BLOCK = "block"


class Durability(enum.Enum):
    """When the copy of a member counts. REPLICATED: in its page cache. SYNCED: on its disk."""

    REPLICATED = "replicated"
    SYNCED = "synced"


@dataclass(frozen=True, slots=True)
class JobSettings:
    """Replication settings of a job. `min_copies` None means min(2, replication_factor + 1)."""

    replication_factor: int = 1
    min_copies: int | None = None
    below_min_copies: BelowMinCopies = BelowMinCopies.DEGRADED
    durability: Durability = Durability.REPLICATED

    def __post_init__(self) -> None:
        if self.replication_factor < 0:
            raise InvalidRequestError(f"replication factor {self.replication_factor}: must be 0 or more")
        if self.min_copies is not None and not 1 <= self.min_copies <= self.replication_factor + 1:
            raise InvalidRequestError(
                f"min copies {self.min_copies}: must be between 1 and replication factor + 1 = "
                f"{self.replication_factor + 1}"
            )

    def __str__(self) -> str:
        """The text in `rhino status` and in logs."""
        text = f"r = {self.replication_factor}, {self.copies} copies or {self.below_min_copies.value}"
        return f"{text}, {self.durability.value}"

    @property
    def copies(self) -> int:
        """The effective min_copies."""
        return min(2, self.replication_factor + 1) if self.min_copies is None else self.min_copies


@dataclass(frozen=True, slots=True)
class ReplicaGroup:
    """The owner (first member) and the ordered chain of secondary copies (Rhino 4.2.2, phase 1)."""

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
    """Whether a worker's disk accepts new files. FAILING lasts until the sidecar is restarted."""

    OK = "ok"
    FULL = "full"  # less than reserve_bytes free, or too few inodes, or a quota refuses files
    FAILING = "failing"  # a write, a read or the index failed


class FileKind(enum.Enum):
    CHANGELOG = "changelog"
    SNAPSHOT = "snapshot"
    SST = "sst"
    LOG = "log"

    @property
    def versioned(self) -> bool:
        return self in (FileKind.CHANGELOG, FileKind.SNAPSHOT)


class Lane(enum.Enum):
    """COMMIT: changelogs and zips. A task waits for them. BULK: data files. They must not delay the commit lane."""

    COMMIT = "commit"
    BULK = "bulk"


class Source(enum.Enum):
    """Origin of the files of a prepared version, ordered from best to worst within a virtual node."""

    EMPTY = "empty"
    LOCAL = "local"
    REPLICA = "replica"
    REMOTE = "remote"


_ID = r"[0-9A-Za-z-]{1,64}"
_VERSIONED = re.compile(rf"^(0|[1-9][0-9]{{0,17}})_({_ID})\.(changelog|zip)\Z")
_DATA = re.compile(r"^(SSTs|logs)/[0-9]{1,18}-[0-9A-Za-z-]{1,64}\.(sst|log)\Z")
_SAFE = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,127}\Z")
_HOST = re.compile(r"[0-9A-Za-z\[:][0-9A-Za-z._:%\]-]{0,254}\Z")
SAFE_NAMES = "letters, digits, '.', '_' and '-', at most 128, the first a letter or a digit"
PARTITIONS_MAX = 100_000
NAMES_PARSED = 1 << 14  # size of the cache of parsed file names; an entry takes about half a kilobyte
VERSION_MAX = 10**18 - 1


class ParsedName(NamedTuple):
    kind: FileKind
    version: Version | None

    @property
    def lane(self) -> Lane:
        return Lane.BULK if self.version is None else Lane.COMMIT


@functools.lru_cache(maxsize=NAMES_PARSED)
def parse_name(name: str) -> ParsedName:
    """Parses a file name below a store's root: its kind, and the version for changelogs and snapshots.

    Raises InvalidRequestError for any name outside the grammar. So a name can never leave its folder.
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


def is_safe(name: str) -> bool:
    """Whether the name can be a folder's name and a part of a key or path. Jobs, stores and workers have such names."""
    return _SAFE.match(name) is not None


def is_host(host: str) -> bool:
    """A host name, an IPv4 address, or an IPv6 address with or without brackets."""
    return _HOST.match(host) is not None


def is_address(address: str) -> bool:
    """Whether the text has the form "host:port"."""
    host, _, port = address.rpartition(":")
    return is_host(host) and port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535


def are_addresses(text: str) -> bool:
    """Whether the text has the form "host:port", or several of this form with commas between them."""
    return all(map(is_address, text.split(",")))


ALL_INTERFACES = ("0.0.0.0", "[::]", "::")  # hosts to listen on; nobody can connect to them


def ip_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Returns the address that a connection to the host goes to. None: the host is a name.

    Connections also take 127.1, 2130706433 and 0x7f000001, and IPv4 addresses within IPv6 ones.
    """
    try:
        found = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except (OSError, UnicodeError):
            return None
    return getattr(found, "ipv4_mapped", None) or found


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the host: `localhost`, 127.0.0.0/8 or ::1."""
    found = ip_of(host)
    return host == "localhost" or (found is not None and found.is_loopback)


def with_port(address: str, port: int) -> str:
    """Returns the address with this port if it names only a host. Any other text stays as it is."""
    only_host = is_host(address) and (":" not in address or (address.startswith("[") and address.endswith("]")))
    return f"{address}:{port}" if only_host else address


def with_ports(addresses: str, port: int) -> str:
    """Like `with_port`, for addresses with commas between them."""
    return ",".join(with_port(address.strip(), port) for address in addresses.split(","))


def check_job(job: str) -> str:
    """Returns the id. Raises InvalidRequestError unless it is safe as a folder name."""
    if not is_safe(job):
        raise InvalidRequestError(f"query id {job[:128]!r}: must be {SAFE_NAMES}")
    return job


def check_store(store: StoreId) -> StoreId:
    """Returns the store. Raises InvalidRequestError unless its parts are safe as folder names."""
    if not is_safe(store.job) or not is_safe(store.store) or store.operator < 0 or store.partition < 0:
        raise InvalidRequestError(f"store {store}: query id and store name must be {SAFE_NAMES}")
    return store


@dataclass(frozen=True, slots=True)
class FileEntry:
    """An immutable file of a store. A pair (store, name) has one checksum forever."""

    store: StoreId
    name: str
    size_bytes: int
    crc32c: int
    lineage: Sequence[Version] = ()  # changelogs: versions before this one, oldest first; see lineage.py
    references: tuple[str, ...] = ()  # snapshots: data files in the zip; changelog of version 1: its snapshot
    written_by: str = ""  # worker_id of the executor that wrote it
    same_as: str = ""  # data files: name of the store's first file with identical bytes, if that is another file
    branch_of: str = ""  # files of a branch: id of the job whose file of this name has identical bytes
    branch_operator: int | None = None  # operator of that file in that job; None: the same operator

    @property
    def branch_source(self) -> StoreId | None:
        """For a file of a branch: the store of another job, with identical bytes in its file of this name."""
        if not self.branch_of:
            return None
        operator = self.store.operator if self.branch_operator is None else self.branch_operator
        return self.store._replace(job=self.branch_of, operator=operator)

    @property
    def content(self) -> str:
        """A common name of all files of the store with identical bytes, as reported by their writer."""
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
