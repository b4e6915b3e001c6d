"""Rhino's services as a protobuf descriptor set. With it, the JVM side needs no generated classes."""

from __future__ import annotations

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from rhino_pb import handover_pb2, sidecar_pb2


def descriptor_set() -> bytes:
    """Returns a serialized FileDescriptorSet of the proto files for the plugin, each after its imports."""
    ordered: dict[str, FileDescriptor] = {}

    def add(file: FileDescriptor) -> None:
        for dependency in file.dependencies:
            add(dependency)
        ordered.setdefault(file.name, file)

    for module in (sidecar_pb2, handover_pb2):
        add(module.DESCRIPTOR)
    result = FileDescriptorSet()
    for file in ordered.values():
        proto = FileDescriptorProto()
        file.CopyToProto(proto)
        result.file.append(proto)
    return result.SerializeToString(deterministic=True)
