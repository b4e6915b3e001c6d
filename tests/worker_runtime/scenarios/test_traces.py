"""Three real sidecars send their spans to a collector: one trace for a commit, by the names of file and workers."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc.aio
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as pb_grpc

from tests.worker_runtime.cluster import Cluster, changelog_bytes
from tests.worker_runtime.scenario import STORE, version


@dataclass
class Seen:
    """A received span. `of`: the service that sent it."""

    of: str
    name: str
    trace: bytes
    span: bytes
    parent: bytes
    facts: dict[str, Any]
    failed: bool


@dataclass
class Collector(pb_grpc.TraceServiceServicer):
    spans: list[Seen] = field(default_factory=list)
    address: str = ""

    async def Export(self, request: pb.ExportTraceServiceRequest, context: Any) -> pb.ExportTraceServiceResponse:
        for resource in request.resource_spans:
            of = {one.key: one.value.string_value for one in resource.resource.attributes}["service.name"]
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                facts = {one.key: one.value.string_value or one.value.int_value for one in span.attributes}
                ids = span.trace_id, span.span_id, span.parent_span_id
                self.spans.append(Seen(of, span.name, *ids, facts, bool(span.status.code)))
        return pb.ExportTraceServiceResponse()

    async def until(self, *names: str) -> list[Seen]:
        """Waits until these spans are there, and returns them. Catch-ups do not count: their number varies."""
        async with asyncio.timeout(30):
            while sorted(span.name for span in self.of_commits) != sorted(names):  # noqa: ASYNC110  gRPC calls us
                await asyncio.sleep(0.05)
        return self.of_commits

    @property
    def of_commits(self) -> list[Seen]:
        return [span for span in self.spans if span.name != "catch up"]


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    server, found = grpc.aio.server(), Collector()
    pb_grpc.add_TraceServiceServicer_to_server(found, server)  # type: ignore[no-untyped-call]
    found.address = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    yield found
    await server.stop(None)


async def test_a_commit_is_one_trace_over_three_sidecars(cluster: Cluster, collector: Collector) -> None:
    for name in ("a", "b", "c"):
        process = cluster.make(name, traces=True)
        process.environment |= {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.address, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        await process.start()
    async with cluster.sidecars["a"].attach(replicas=2) as client:
        await client.commit(STORE, version(1), changelog_bytes(1), [])
        await collector.until("commit", "push", "receive", "push", "receive")
    for process in cluster.sidecars.values():
        assert await process.end(signal.SIGTERM) == 0

    spans = collector.of_commits
    assert {span.of for span in spans} == {"rhino-sidecar"}
    assert len({span.trace for span in spans}) == 1
    assert not any(span.failed for span in spans)
    (commit,) = [span for span in spans if span.name == "commit"]
    assert commit.facts == {
        "rhino.worker": "a",
        "rhino.file": f"{STORE}/{version(1)}.changelog",
        "rhino.bytes": len(changelog_bytes(1)),
        "rhino.copies": commit.facts["rhino.copies"],
    }
    by_id = {span.span: span for span in spans}
    path = [commit]
    while following := [span for span in spans if span.parent == path[-1].span]:
        path += following
    assert [(span.name, span.facts["rhino.worker"]) for span in path] == [
        ("commit", "a"),
        ("push", "a"),
        ("receive", "b"),
        ("push", "b"),
        ("receive", "c"),
    ]
    assert len(by_id) == len(path)
    assert commit.parent == b""
