import importlib.util
from pathlib import Path

from google.protobuf.descriptor import FileDescriptor

from rhino_pb import common_pb2, handover_pb2, peer_pb2, replication_pb2, sidecar_pb2

ROOT = Path(__file__).resolve().parents[2]


def test_checked_in_modules_match_their_proto_files() -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "proto" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.drifted() == []


def test_everything_lives_in_one_package() -> None:
    files: list[FileDescriptor] = [
        m.DESCRIPTOR for m in (common_pb2, handover_pb2, peer_pb2, replication_pb2, sidecar_pb2)
    ]
    assert {f.package for f in files} == {"rhino.v1"}
