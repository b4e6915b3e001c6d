"""Shared by the tests of the cores: short ways to write workers, groups and files."""

from __future__ import annotations

from rhino_core.ids import Epoch, FileEntry, GroupId, JobSettings, Member, ReplicaGroup, StoreId, Version, Worker

STORE = StoreId("job", 0, 3, "default")
GROUP = STORE.group


def worker(name: str, incarnation: int = 1) -> Worker:
    return Worker(name, f"{name}/{incarnation}", "127.0.0.1", f"127.0.0.1:{ord(name[0])}")


def group(
    epoch: int, members: str, *, whole: str | None = None, required: int = 1, gid: GroupId = GROUP
) -> ReplicaGroup:
    """`members`: one letter each, owner first; `whole`: those that are (default all)."""
    return ReplicaGroup(
        group=gid,
        epoch=Epoch(1, epoch),
        members=tuple(Member(worker(m), m in (members if whole is None else whole)) for m in members),
        required_copies=required,
        settings=JobSettings(replication_factor=max(0, len(members) - 1)),
    )


def version(number: int) -> Version:
    return Version(number, f"id{number}")


def changelog(number: int, *, since: int = 1, size: int = 10, crc: int = 1) -> FileEntry:
    """A changelog whose lineage starts at version `since`."""
    lineage = tuple(version(n) for n in range(since, number))
    return FileEntry(STORE, f"{version(number)}.changelog", size, crc, lineage=lineage, written_by="a")


def snapshot(number: int, *references: str, size: int = 5) -> FileEntry:
    return FileEntry(STORE, f"{version(number)}.zip", size, 2, references=references, written_by="a")


def sst(number: int, size: int = 100) -> FileEntry:
    return FileEntry(STORE, f"SSTs/{number:06d}-u{number}.sst", size, 3, written_by="a")
