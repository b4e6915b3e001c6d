"""Spans with ids made from names, sent by OTLP over gRPC. The variables OTEL_* say where to, and how many."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

from opentelemetry import trace as api
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

OPEN_MAX = 10_000  # open spans; the oldest is dropped for another one: its end is not known here


class _NamedIds(RandomIdGenerator):
    """The ids of the next span."""

    trace_id = span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


class OpenTelemetry:
    """Implements `Traces`."""

    def __init__(self, service: str) -> None:
        self._ids = _NamedIds()
        resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", service)})
        self._provider = TracerProvider(resource=resource, id_generator=self._ids)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("rhino")
        self._open: dict[tuple[str, str], api.Span] = {}

    def begin(self, trace: str, key: str, name: str, *, parent: str = "", **facts: str | int) -> None:
        if (trace, key) in self._open:
            return
        self._ids.trace_id, self._ids.span_id = _id(trace, 16), _id(f"{trace} {key}", 8)
        context = Context()
        if parent:
            flags = api.TraceFlags(api.TraceFlags.SAMPLED)
            of = api.SpanContext(self._ids.trace_id, _id(f"{trace} {parent}", 8), is_remote=True, trace_flags=flags)
            context = api.set_span_in_context(api.NonRecordingSpan(of), context)
        while len(self._open) >= OPEN_MAX:
            del self._open[next(iter(self._open))]
        self._open[trace, key] = self._tracer.start_span(name, context, attributes=_attributes(facts))

    def end(self, trace: str, key: str, *, error: str = "", **facts: str | int) -> None:
        span = self._open.pop((trace, key), None)
        if span is None:
            return
        span.set_attributes(_attributes(facts))
        if error:
            span.set_status(api.Status(api.StatusCode.ERROR, error))
        span.end()

    def close(self) -> None:
        """Sends the ended spans. It blocks, for some seconds if nobody takes them."""
        self._provider.shutdown()


def _id(name: str, size_bytes: int) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:size_bytes])


def _attributes(facts: Mapping[str, str | int]) -> dict[str, str | int]:
    return {f"rhino.{name}": value for name, value in facts.items()}
