"""adopt and release between a folder and real sidecars; Spark's own files come in tests/spark/test_takeover.py."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from rhino_core.errors import LostError, PreconditionError, UnavailableError
from rhino_core.ids import JobSettings
from spark_connector import operator_metadata
from spark_connector.conf import PROVIDER_CLASSES
from spark_connector.query_checkpoint import QueryCheckpoint
from spark_connector.rpc.sidecar import SidecarSession
from spark_connector.takeover import AdoptOptions, Outcome, adopt, release
from tests.query_evolution.structure.described import write_versioned
from tests.spark_connector.support.checkpoint import make
from tests.spark_connector.support.takeover import SST, session
from tests.worker_runtime.cluster import Cluster, Process, zip_bytes


def checkpoint_with_snapshot(folder: Path) -> QueryCheckpoint:
    """One store at version 2, which has a snapshot; beside it what Spark leaves lying about."""
    checkpoint = make(folder, {"0": [["id"]]})
    store = folder / "state" / "0" / "0"
    (store / "SSTs").mkdir(parents=True)
    (store / SST).write_bytes(b"s" * 5000)
    (store / "2_id.zip").write_bytes(zip_bytes("000001-x.sst"))
    (store / ".2_id.zip.crc").write_bytes(b"crc")
    (store / "1_old.changelog").write_bytes(b"not needed")
    (store / "_metadata").mkdir()
    (store / "_metadata" / "schema").write_bytes(b"schema")
    return checkpoint


def run_adopt(process: Process, folder: Path, *, dry_run: bool = False) -> Outcome:
    with session(process) as attached:
        return adopt(folder, attached, AdoptOptions(dry_run=dry_run, idle_s=0))


def run_release(process: Process, folder: Path, *, dry_run: bool = False) -> Outcome:
    with session(process) as attached:
        return release(folder, attached, dry_run=dry_run, idle_s=0)


async def test_state_goes_into_the_sidecars_and_comes_back_from_another(tmp_path: Path) -> None:
    folder = tmp_path / "q"
    checkpoint = checkpoint_with_snapshot(folder)
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.start("a", "b")
        would = await asyncio.to_thread(run_adopt, a, folder, dry_run=True)
        assert checkpoint.provider() == PROVIDER_CLASSES["checkpoint"]
        done = await asyncio.to_thread(run_adopt, a, folder)
        assert (done.stores, done.files, done.worker_id) == (would.stores, would.files, "a") == (1, 2, "a")
        assert checkpoint.provider() == PROVIDER_CLASSES["provider"]
        store = folder / "state" / "0" / "0"
        expected = {name: (store / name).read_bytes() for name in (SST, "2_id.zip")}
        for name in expected:
            os.unlink(store / name)
        write_versioned(folder, 0, "transformWithStateExec", {}, root=f"rhino://file{folder}", variables={})
        would = await asyncio.to_thread(run_release, b, folder, dry_run=True)
        assert not (store / SST).exists()
        assert named_schemas(folder) == [f"rhino://file{folder}/state/0/_stateSchema/default/0_schema"]
        back = await asyncio.to_thread(run_release, b, folder)
        assert (back.files, back.bytes, back.worker_id) == (would.files, would.bytes, "b") == (2, done.bytes, "b")
        assert {name: (store / name).read_bytes() for name in expected} == expected
        assert not (store / ".2_id.zip.crc").exists()
        assert checkpoint.provider() == PROVIDER_CLASSES["checkpoint"]
        assert named_schemas(folder) == [f"file:{folder}/state/0/_stateSchema/default/0_schema"]


def named_schemas(folder: Path) -> list[str]:
    """What Spark's own provider would look for."""
    (path,) = operator_metadata.versions(folder / "state" / "0").values()
    return operator_metadata.schema_paths(operator_metadata.read(path))


async def test_what_cannot_be_opened_is_not_adopted(tmp_path: Path) -> None:
    folder = tmp_path / "q"
    checkpoint = checkpoint_with_snapshot(folder)
    store = folder / "state" / "0" / "0"
    os.unlink(store / SST)
    async with Cluster(tmp_path) as cluster:
        (a,) = await cluster.start("a")
        with pytest.raises(LostError, match="2_id"):
            await asyncio.to_thread(run_adopt, a, folder)
        os.unlink(store / "2_id.zip")
        (store / "2_id.changelog").write_bytes(b"snappy or so")
        with pytest.raises(PreconditionError, match="not compressed with LZ4"):
            await asyncio.to_thread(run_adopt, a, folder)
    assert checkpoint.provider() == PROVIDER_CLASSES["checkpoint"]


def test_a_node_without_a_sidecar_is_named_with_the_way_out(tmp_path: Path) -> None:
    with (
        pytest.raises(UnavailableError, match=r"^no Rhino sidecar answers on .*/s.sock: start one on this node"),
        SidecarSession(tmp_path / "s.sock", JobSettings(), client="test"),
    ):
        raise AssertionError("attached")
