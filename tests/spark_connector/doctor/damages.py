"""Damage to a query checkpoint, each kind as a function that plants it, and what the doctor must say."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from spark_connector.doctor.checksums import names_of
from spark_connector.doctor.finding import Finding, Severity

BLOCKS, WEAKENS, OLDER, NOTE = Severity
START = -100  # no committed batch opens: a copy begins with batch 0


@dataclass(frozen=True)
class Damage:
    """`file`: a pattern of names. `back`: by how many batches the repaired copy is older; None: there is no copy.

    `plant` gets the folder of the checkpoint and its newest committed batch.
    """

    base: str
    name: str
    plant: Callable[[Path, int], None]
    severity: Severity
    file: str
    text: str = ""
    back: int | None = 0

    def named_by(self, finding: Finding) -> bool:
        return finding.severity is self.severity and fnmatch(finding.file, self.file) and self.text in finding.text


# ---- what is done to a file


def bare(path: Path) -> Path:
    """Without checksum files, as on an object store."""
    for name in names_of(path.name):
        for sums in (path.with_name(name), path.with_name(names_of(name)[0])):
            sums.unlink(missing_ok=True)
    return path


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut_end(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def flip(path: Path) -> None:
    """Some bytes: a single one in LZ4 may mean the same as before."""
    data = path.read_bytes()
    middle = len(data) // 2
    path.write_bytes(data[:middle] + bytes(byte ^ 0x5A for byte in data[middle : middle + 8]) + data[middle + 8 :])


def flip_end(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 0x5A]))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def gone(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else bare(path).unlink()


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def garbage(path: Path) -> None:
    path.write_bytes(b"\xff\xfe garbage \0" * 9)


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


# ---- which file


def one(pattern: str, do: Callable[[Path], None], *, unsummed: bool = False) -> Callable[[Path, int], None]:
    """`pattern`: of paths; the last one counts. {c} stands for the newest committed batch, {b} for the one before."""

    def plant(checkpoint: Path, newest: int) -> None:
        found = sorted(checkpoint.glob(pattern.format(c=newest, b=newest - 1)))
        assert found, f"{pattern} in {checkpoint}"
        do(bare(found[-1]) if unsummed else found[-1])

    return plant


def newest_zip(do: Callable[[Path], None], *, unsummed: bool = False) -> Callable[[Path, int], None]:
    def plant(checkpoint: Path, newest: int) -> None:
        path = _newest_zip(checkpoint / "state/0/1")
        do(bare(path) if unsummed else path)

    return plant


def newest_table(do: Callable[[Path], None], *, unsummed: bool = False) -> Callable[[Path, int], None]:
    """A data file that the newest snapshot names."""

    def plant(checkpoint: Path, newest: int) -> None:
        archive = _newest_zip(checkpoint / "state/0/1")
        with zipfile.ZipFile(archive) as opened:
            fields = json.loads(opened.read("metadata").decode().partition("\n")[2])
        path = (
            archive.parent / "SSTs" / max(fields["sstFiles"], key=lambda file: file["localFileName"])["dfsSstFileName"]
        )
        do(bare(path) if unsummed else path)

    return plant


def _newest_zip(folder: Path) -> Path:
    return max(folder.glob("*.zip"), key=lambda path: int(path.name.split(".")[0].split("_")[0]))


def without_entry(path: Path) -> None:
    """The zip without its list of data files."""
    with zipfile.ZipFile(path) as opened:
        entries = {name: opened.read(name) for name in opened.namelist() if name != "metadata"}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    path.write_bytes(buffer.getvalue())


def two_commits(checkpoint: Path, newest: int) -> None:
    gone(checkpoint / f"commits/{newest}")
    gone(checkpoint / f"commits/{newest - 1}")


def planned(checkpoint: Path, newest: int) -> None:
    text = (checkpoint / f"offsets/{newest}").read_text()
    (checkpoint / f"offsets/{newest + 1}").write_text(text[: len(text) // 2])


def fewer_sources(path: Path) -> None:
    path.write_text(path.read_text().rpartition("\n")[0])


def other_provider(path: Path) -> None:
    path.write_text(path.read_text().replace("RocksDBStateStoreProvider", "HDFSBackedStateStoreProvider"))


def unknown_version(path: Path) -> None:
    path.write_text(path.read_text().replace("v1", "v9", 1).replace("v2", "v9", 1))


def _ids(path: Path, change: Callable[[list[list[str]]], object]) -> None:
    version, _, body = path.read_text().partition("\n")
    fields = json.loads(body)
    change(fields["stateUniqueIds"]["0"])
    path.write_text(f"{version}\n{json.dumps(fields)}")


def fewer_ids(path: Path) -> None:
    _ids(path, lambda partitions: partitions.pop())


def strange_id(path: Path) -> None:
    _ids(path, lambda partitions: partitions[1].__setitem__(0, "00000000-0000-4000-8000-000000000000"))


def content_of_former(checkpoint: Path, newest: int) -> None:
    former, path = (next(checkpoint.glob(f"state/0/1/{version}_*.changelog")) for version in (newest, newest + 1))
    bare(path).write_bytes(former.read_bytes())


def sums_of_former(checkpoint: Path, newest: int) -> None:
    former, path = (next(checkpoint.glob(f"state/0/1/{v}_*.changelog.crc")) for v in (newest, newest + 1))
    bare(path).write_bytes(former.read_bytes())


def lost_source(checkpoint: Path, newest: int) -> None:
    (checkpoint / "sources/0").mkdir(parents=True)
    (checkpoint / "sources/0/0").write_bytes(b"")


def unfinished(checkpoint: Path, newest: int) -> None:
    (checkpoint / "state/0/1/.9.changelog.5e1c.tmp").write_bytes(b"half")


def orphan(checkpoint: Path, newest: int) -> None:
    (checkpoint / "state/0/1/0_gone.changelog.crc").write_bytes(b"{}")


LAST, MIDDLE, DELTA = "state/0/1/8*.changelog", "state/0/1/7*.changelog", "state/0/1/8.delta"
DAMAGES = [
    # ---- the root and the logs
    Damage("rocks1", "id missing", one("metadata", gone), BLOCKS, "metadata", "missing"),
    Damage("rocks1", "id cut", one("metadata", cut_end), BLOCKS, "metadata"),
    Damage("rocks1", "id garbage", one("metadata", garbage), BLOCKS, "metadata"),
    Damage("rocks1", "newest offsets cut", one("offsets/{c}", cut), BLOCKS, "offsets/7", back=1),
    Damage("rocks2", "newest offsets empty", one("offsets/{c}", empty), BLOCKS, "offsets/7", "empty", back=1),
    Damage("rocks2", "newest offsets missing", one("offsets/{c}", gone), BLOCKS, "offsets/7", back=1),
    Damage("rocks1", "a bit of offsets", one("offsets/{c}", flip), BLOCKS, "offsets/7", back=1),
    Damage("hdfs", "offsets without sums cut", one("offsets/{c}", cut, unsummed=True), BLOCKS, "offsets/7", back=1),
    Damage("rocks1", "offsets before the newest", one("offsets/{b}", gone), BLOCKS, "offsets/6", "missing", back=2),
    Damage("rocks1", "older offsets missing", one("offsets/3", gone), OLDER, "offsets/3", "missing"),
    Damage("join", "fewer sources", one("offsets/{c}", fewer_sources, unsummed=True), BLOCKS, "offsets/7", "fewer", 1),
    Damage("rocks1", "provider", one("offsets/{c}", other_provider, unsummed=True), BLOCKS, "offsets/7", "another", 1),
    Damage("rocks1", "sums of offsets", one("offsets/.{c}.crc", cut), WEAKENS, "offsets/.7.crc", "damaged"),
    Damage("rocks2", "planned batch cut", planned, BLOCKS, "offsets/8"),
    Damage("rocks2", "newest commit empty", one("commits/{c}", empty), BLOCKS, "commits/7", "empty", back=1),
    Damage("rocks1", "newest commit garbage", one("commits/{c}", garbage), BLOCKS, "commits/7", back=1),
    Damage(
        "rocks2",
        "commit of version 9",
        one("commits/{c}", unknown_version, unsummed=True),
        BLOCKS,
        "commits/7",
        "v9",
        1,
    ),
    Damage("rocks2", "a bit of a commit", one("commits/{c}", flip), BLOCKS, "commits/7", back=1),
    Damage("rocks1", "newest commit missing", one("commits/{c}", gone), NOTE, "offsets/7", "not committed"),
    Damage("rocks2", "two commits missing", two_commits, BLOCKS, "commits/6", "missing"),
    Damage("rocks1", "older commit missing", one("commits/3", gone), OLDER, "commits/3", "missing"),
    Damage(
        "rocks2", "fewer ids", one("commits/{c}", fewer_ids, unsummed=True), BLOCKS, "commits/7", "no checkpoint id", 1
    ),
    Damage(
        "rocks2", "strange id", one("commits/{c}", strange_id, unsummed=True), BLOCKS, "state/0/1/8_0*", "missing", 1
    ),
    Damage("rocks1", "source", lost_source, BLOCKS, "sources/0/0", "empty", None),
    # ---- changelogs
    Damage("rocks1", "changelog missing", one(LAST, gone), BLOCKS, "state/0/1/8.changelog", "missing", 1),
    Damage("rocks1", "changelog cut", one(LAST, cut), BLOCKS, "state/0/1/8.changelog", back=1),
    Damage(
        "rocks1", "changelog without sums cut", one(LAST, cut, unsummed=True), BLOCKS, "state/0/1/8.changelog", back=1
    ),
    Damage("rocks2", "changelog flipped", one(LAST, flip), BLOCKS, "state/0/1/8_*.changelog", back=1),
    Damage(
        "rocks2", "bare changelog flipped", one(LAST, flip, unsummed=True), BLOCKS, "state/0/1/8_*.changelog", back=1
    ),
    Damage("rocks1", "changelog empty", one(LAST, empty), BLOCKS, "state/0/1/8.changelog", "empty", 1),
    Damage("rocks1", "changelog before missing", one(MIDDLE, gone), BLOCKS, "state/0/1/7.changelog", "missing", 2),
    Damage("rocks2", "another's changelog", content_of_former, BLOCKS, "state/0/1/8_*.changelog", "another version", 1),
    Damage("rocks1", "older changelog", one("state/0/1/1.changelog", cut), OLDER, "state/0/1/1.changelog"),
    Damage(
        "rocks1", "sums of a changelog longer", one("state/0/1/.8.changelog.crc", longer), WEAKENS, "state/0/1/.8.*"
    ),
    Damage(
        "rocks1", "sums of a changelog flipped", one("state/0/1/.8.changelog.crc", flip_end), WEAKENS, "state/0/1/.8.*"
    ),
    Damage("rocks2", "Spark's sums garbage", one("state/0/1/8_*.changelog.crc", garbage), BLOCKS, "state/0/1/8_*.crc"),
    Damage("rocks2", "Spark's sums of another", sums_of_former, BLOCKS, "state/0/1/8_*.crc", "does not match the file"),
    Damage(
        "rocks2", "sums of Spark's sums", one("state/0/1/.8_*.changelog.crc.crc", longer), WEAKENS, "state/0/1/.8_*.crc"
    ),
    Damage(
        "rocks2",
        "Spark's sums unlike theirs",
        one("state/0/1/.8_*.changelog.crc.crc", flip_end),
        WEAKENS,
        "state/0/1/.8_*.crc",
    ),
    # ---- snapshots and their data files
    Damage("rocks1", "snapshot missing", newest_zip(gone), NOTE, "", "no snapshot names"),
    Damage("rocks1", "snapshot cut", newest_zip(cut), WEAKENS, "state/0/1/*.zip"),
    Damage("rocks1", "bare snapshot flipped", newest_zip(flip, unsummed=True), WEAKENS, "state/0/1/*.zip"),
    Damage("rocks1", "snapshot of zeros", newest_zip(zeros), WEAKENS, "state/0/1/*.zip"),
    Damage("rocks1", "snapshot without list", newest_zip(without_entry, unsummed=True), WEAKENS, "state/0/1/*.zip"),
    Damage("rocks2", "base missing", newest_zip(gone), WEAKENS, "state/0/1/*.zip", "missing"),
    Damage("rocks2", "base cut", newest_zip(cut), WEAKENS, "state/0/1/*.zip"),
    Damage("plain1", "the only snapshot cut", newest_zip(cut), BLOCKS, "state/0/1/8.zip", back=1),
    Damage("rocks1", "data file missing", newest_table(gone), WEAKENS, "state/0/1/SSTs/*", "missing"),
    Damage("rocks1", "data file cut", newest_table(cut), WEAKENS, "state/0/1/SSTs/*", "bytes"),
    Damage("rocks2", "data file longer", newest_table(longer), WEAKENS, "state/0/1/SSTs/*", "bytes"),
    Damage("rocks1", "data file flipped", newest_table(flip), WEAKENS, "state/0/1/SSTs/*", "match"),
    Damage("rocks2", "bare data file flipped", newest_table(flip, unsummed=True), BLOCKS, "state/0/1/*.zip", "RocksDB"),
    Damage("plain1", "the only data file", newest_table(gone), BLOCKS, "state/0/1/SSTs/*", "missing", 1),
    # ---- folders
    Damage("rocks1", "partition", one("state/0/1", gone), BLOCKS, "state/0/1/8.changelog", "nothing", START),
    Damage("join", "store", one("state/0/1/right-keyToNumValues", gone), BLOCKS, "state/0/1/right-*", "nothing", START),
    Damage("rocks2", "state", one("state", gone), BLOCKS, "state/0/1/8_*", "nothing", START),
    Damage("rocks1", "state of format 1", one("state", gone), NOTE, "state", "all of its state is lost"),
    # ---- descriptions
    Damage(
        "rocks1", "operator garbage", one("state/0/_metadata/metadata", garbage), WEAKENS, "state/0/_metadata/metadata"
    ),
    Damage(
        "rocks1", "operator missing", one("state/0/_metadata/metadata", gone), WEAKENS, "state/0/_metadata/metadata"
    ),
    Damage("rocks1", "schema cut", one("state/0/0/_metadata/schema", cut), BLOCKS, "state/0/0/_metadata/schema"),
    Damage("rocks1", "schema missing", one("state/0/0/_metadata/schema", gone), WEAKENS, "state/0/0/_metadata/schema"),
    Damage(
        "transform", "schema lost", one("state/0/_stateSchema/*/*", gone), BLOCKS, "state/0/_stateSchema/*", back=START
    ),
    Damage(
        "transform",
        "schema garbage",
        one("state/0/_stateSchema/*/*", garbage),
        BLOCKS,
        "state/0/_stateSchema/*",
        back=START,
    ),
    Damage(
        "transform", "operator cut", one("state/0/_metadata/v2/*", cut), BLOCKS, "state/0/_metadata/v2/*", back=START
    ),
    Damage("transform", "changelog lost", one(LAST, gone), BLOCKS, "state/0/1/8_*.changelog", "missing", 1),
    # ---- the HDFS-backed provider
    Damage("hdfs", "delta missing", one(DELTA, gone), BLOCKS, "state/0/1/8.delta", "missing", 1),
    Damage("hdfs", "bare delta cut", one(DELTA, cut, unsummed=True), BLOCKS, "state/0/1/8.delta", back=1),
    Damage("hdfs", "delta flipped", one(DELTA, flip), BLOCKS, "state/0/1/8.delta", back=1),
    Damage("hdfs", "snapshot cut", one("state/0/1/*.snapshot", cut), WEAKENS, "state/0/1/*.snapshot"),
    Damage(
        "hdfs",
        "bare snapshot flipped",
        one("state/0/1/*.snapshot", flip, unsummed=True),
        WEAKENS,
        "state/0/1/*.snapshot",
    ),
    # ---- no damage
    Damage("rocks2", "unfinished write", unfinished, NOTE, "", "unfinished"),
    Damage("rocks2", "orphan", orphan, NOTE, "", "checksum file"),
]
