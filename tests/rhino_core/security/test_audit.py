"""The file of the audit log: who may read it, rotation, a full disk, and threads."""

from __future__ import annotations

import json
import logging
import os
import shutil
import stat
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rhino_core.descriptors import KINDS_MAX, LogLimits
from rhino_core.errors import InvalidSettingError
from rhino_core.security import audit
from rhino_core.security.audit import OF_PRINCIPAL, AuditLog, Line


def line(number: int = 0, **names: object) -> Line:
    names = {"job": f"j{number}", **names}
    return Line("rhino://c/operator/alice", "ipv4:127.0.0.1:1", "/s/ForgetJob", names, "ok", 0.25, time_s=1.5)


def lines(file: Path) -> list[Any]:
    return [json.loads(text) for text in file.read_text().splitlines()]


def test_a_line(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    log = AuditLog(str(file))
    log.write(line())
    log.close()
    [found] = lines(file)
    assert found == {
        "time": "1970-01-01T00:00:01.500Z",
        "principal": "rhino://c/operator/alice",
        "peer": "ipv4:127.0.0.1:1",
        "method": "/s/ForgetJob",
        "names": {"job": "j0"},
        "outcome": "ok",
        "duration_s": 0.25,
    }


def test_names_of_strangers_stay_on_their_line(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    AuditLog(str(file)).write(line(worker='w"\n{"principal": "forged"}\u2028\ud800'))
    assert len(file.read_bytes().splitlines()) == 1
    assert lines(file)[0]["names"]["worker"].startswith('w"\n{')


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_only_its_user_may_read_it_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    former = os.umask(umask)
    try:
        AuditLog(str(tmp_path / "new")).write(line())
    finally:
        os.umask(former)
    (tmp_path / "old").write_text("")
    (tmp_path / "old").chmod(0o644)
    AuditLog(str(tmp_path / "old"))
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("new", "old")} == {0o600}


def test_a_later_start_appends(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    for number in range(2):
        log = AuditLog(str(file))
        log.write(line(number))
        log.close()
        log.write(line(9))  # closed: in the ordinary log only
    assert [one["names"]["job"] for one in lines(file)] == ["j0", "j1"]


@pytest.mark.parametrize("way", ["renamed", "deleted", "renamed and made anew", "copied and truncated"])
def test_rotation(tmp_path: Path, way: str) -> None:
    file, old = tmp_path / "audit.log", tmp_path / "audit.log.1"
    log = AuditLog(str(file))
    log.write(line(0))
    if way == "deleted":
        file.unlink()
    elif way == "copied and truncated":
        shutil.copy(file, old)
        os.truncate(file, 0)
    else:
        file.rename(old)
    if way == "renamed and made anew":
        file.touch(0o640)
    log.write(line(1))
    log.write(line(2))
    assert [one["names"]["job"] for one in lines(file)] == ["j1", "j2"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert way == "deleted" or [one["names"]["job"] for one in lines(old)] == ["j0"]
    opened = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _is_open(name)]
    assert not [path for path in opened if path.startswith(str(old)) or path == f"{file} (deleted)"], "still open"
    log.close()


def _is_open(name: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{name}")


class FullDisk:
    """Stands in for os.write: takes as many bytes as there is room."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._write = os.write

    def __call__(self, file: int, data: bytes) -> int:
        if not self.room:
            raise OSError(28, "No space left on device")
        written = self._write(file, data[: self.room])
        self.room -= written
        return written


@pytest.mark.parametrize("room", [0, 40])
def test_a_full_disk_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, room: int
) -> None:
    caplog.set_level(logging.INFO)
    file = tmp_path / "audit.log"
    log = AuditLog(str(file))
    log.write(line(0))
    disk = FullDisk(room)
    monkeypatch.setattr(os, "write", disk)
    for number in range(1, 4):
        log.write(line(number))
    disk.room = 10_000
    log.write(line(4))
    log.write(line(5))
    found = file.read_text().splitlines()
    if room:
        torn = found.pop(1)
        assert len(torn) == room
    assert [json.loads(text).get("missing_lines") for text in found] == [None, 3, None, None]
    assert [json.loads(text)["names"]["job"] for text in found if "names" in text] == ["j0", "j4", "j5"]
    logged = [record.__dict__["names"]["job"] for record in caplog.records if record.msg == "audit"]
    assert logged == [f"j{number}" for number in range(6)], "the ordinary log has all of them"
    assert len([record for record in caplog.records if "cannot be written" in record.msg]) == 1
    [again] = [record for record in caplog.records if "written again" in record.msg]
    assert again.__dict__["missing_lines"] == 3
    assert log.missing_total == 3


def test_a_flood_of_refused_calls_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    file = tmp_path / "audit.log"
    log = AuditLog(str(file), lambda: now)
    eve, mallory = replace(line(), principal="eve", outcome="AccessDeniedError"), replace(line(), principal="mallory")
    stranger = replace(line(), principal="", outcome="UnknownError")
    for _ in range(1000):
        log.write(eve, alarm=True)
        log.write(stranger)
    log.write(mallory, alarm=True)
    assert [found["principal"] for found in lines(file)] == ["eve", "", "mallory"]
    assert len(caplog.records) == 2, "the ordinary log has the warnings"
    now = 10.0
    log.write(eve, alarm=True)
    assert lines(file)[-1]["left_out"] == 999
    for _ in range(3):
        log.write(replace(eve, outcome="UnknownError"))  # somebody with an identity has every line
        log.write(replace(stranger, outcome="ok"))
    assert len(lines(file)) == 10


def test_lines_of_one_principal_are_bounded_and_others_have_theirs(tmp_path: Path) -> None:
    now = 0.0
    file = tmp_path / "audit.log"
    log = AuditLog(str(file), lambda: now)
    for _ in range(1000):
        log.write(replace(line(), principal="eve"))
    log.write(replace(line(), principal="alice"))
    found = lines(file)
    assert [one["principal"] for one in found] == ["eve"] * OF_PRINCIPAL + ["alice"]
    now = 60.0
    log.write(replace(line(), principal="eve"))
    log.write(replace(line(), principal="eve"))
    assert [one.get("left_out") for one in lines(file)[-2:]] == [1000 - OF_PRINCIPAL, None]


def test_a_full_file_is_renamed_and_the_oldest_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "FILE_BYTES_MAX", 300)  # two lines
    monkeypatch.setattr(audit, "FORMER_MAX", 2)
    log = AuditLog(str(tmp_path / "audit.log"))
    for number in range(9):
        log.write(line(number))
    log.close()
    files = ["audit.log", "audit.log.1", "audit.log.2"]
    assert sorted(path.name for path in tmp_path.iterdir()) == files
    found = [[one["names"]["job"] for one in lines(tmp_path / name)] for name in files]
    assert found == [["j8"], ["j6", "j7"], ["j4", "j5"]]


def test_a_link_is_no_audit_log(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    victim.chmod(0o644)
    (tmp_path / "audit.log").symlink_to(victim)
    with pytest.raises(InvalidSettingError, match="Too many levels of symbolic links"):
        AuditLog(str(tmp_path / "audit.log"))
    assert (victim.read_text(), stat.S_IMODE(victim.stat().st_mode)) == ("precious", 0o644)


def test_invented_kinds_of_lines_take_no_memory() -> None:
    limits = LogLimits(lambda: 0.0)
    for number in range(KINDS_MAX + 1):
        assert limits.due(str(number)) == 0
    assert limits.due(str(KINDS_MAX)) is None
    assert limits.due("0") == 0, "the oldest was dropped"
    assert len(limits._limits) == KINDS_MAX


def test_a_torn_line_of_a_former_process(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    file.write_text('{"time": "19')
    AuditLog(str(file)).write(line(1))
    assert json.loads(file.read_text().splitlines()[1])["names"] == {"job": "j1"}


def test_a_folder_that_is_gone_and_comes_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    log = AuditLog(str(folder / "audit.log"))
    shutil.rmtree(folder)
    log.write(line(0))
    log.write(line(1))
    assert len([record for record in caplog.records if "cannot be written" in record.msg]) == 1
    folder.mkdir()
    log.write(line(2))
    assert [one.get("missing_lines") for one in lines(folder / "audit.log")] == [2, None]


def test_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines neither mix nor get lost, while the file is renamed away."""
    monkeypatch.setattr(audit, "OF_PRINCIPAL", 1_000_000)
    file = tmp_path / "audit.log"
    log = AuditLog(str(file))
    enough = threading.Event()
    written = [0] * 4

    def write(thread: int) -> None:
        while not enough.is_set():
            log.write(line(written[thread] * len(written) + thread, workers=["w" * 50] * 20))
            written[thread] += 1

    threads = [threading.Thread(target=write, args=(number,)) for number in range(len(written))]
    for thread in threads:
        thread.start()
    deadline, renamed = time.monotonic() + 60, 0
    while (renamed < 5 or min(written) < 20) and time.monotonic() < deadline:
        if file.exists():
            file.rename(tmp_path / f"audit.log.{renamed}")
            renamed += 1
    enough.set()
    for thread in threads:
        thread.join(60)
    assert renamed >= 5
    found = [one["names"]["job"] for part in tmp_path.iterdir() for one in lines(part)]
    expected = [n * len(written) + thread for thread, count in enumerate(written) for n in range(count)]
    assert sorted(found) == sorted(f"j{number}" for number in expected)


def test_what_is_no_file_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for wrong, why in (("fifo", "not a regular file"), (".", "Is a directory"), ("no/such", "No such file")):
        with pytest.raises(InvalidSettingError, match=f"--audit-log .*{why}.*; give a file"):
            AuditLog(str(tmp_path / wrong))
