"""A sidecar between an executor and a real one: it hands calls on, but for those that a test answers itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
from google.protobuf.message import Message

from rhino_core.rpc import greeting
from rhino_pb import sidecar_pb2, sidecar_pb2_grpc

# Answers a call, or None to hand it on.
Answer = Callable[[Any, grpc.ServicerContext], Message | None]


class ProxySidecar(sidecar_pb2_grpc.SidecarServicer):
    """Serves on `socket` what the sidecar at `behind` serves."""

    def __init__(self, socket: Path, behind: str) -> None:
        self.socket = socket
        self._behind = Path(behind)
        self.inboxes: list[Path] = []
        self._answers: dict[str, Answer] = {}
        self._calls: list[tuple[str, Message]] = []
        self._lock = threading.Lock()
        self._channel = grpc.insecure_channel(f"unix://{behind}")
        self._real = sidecar_pb2_grpc.SidecarStub(self._channel)
        self._server = grpc.server(ThreadPoolExecutor(32))
        sidecar_pb2_grpc.add_SidecarServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix://{socket}")

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(grace=None).wait()
        self._channel.close()

    def answer(self, method: str, answer: Answer) -> None:
        """From now on `answer` is asked first."""
        self._answers[method] = answer

    def calls(self, method: str) -> list[Any]:
        """Requests of this method that have come so far."""
        with self._lock:
            return [request for name, request in self._calls if name == method]

    def left_in_inboxes(self) -> list[Path]:
        return [path for inbox in self.inboxes if inbox.is_dir() for path in inbox.iterdir()]

    def _unary(self, method: str, request: Message, context: grpc.ServicerContext) -> Message:
        with self._lock:
            self._calls.append((method, request))
        answer = self._answers.get(method)
        reply = answer(request, context) if answer else None
        return self.hand_on(method, request, context) if reply is None else reply

    def hand_on(self, method: str, request: Message, context: grpc.ServicerContext) -> Message:
        """What the sidecar behind answers."""
        try:
            reply: Message = getattr(self._real, method)(request)
        except grpc.RpcError as error:
            context.abort(error.code(), error.details() or "")
        return reply

    def Attach(
        self, request: sidecar_pb2.AttachRequest, context: grpc.ServicerContext
    ) -> Iterator[sidecar_pb2.SessionInfo]:
        request.token = greeting.ask(self._behind)
        stream = self._real.Attach(request)
        context.add_callback(stream.cancel)
        try:
            for info in stream:
                self.inboxes.append(Path(info.inbox))
                yield info
        except grpc.RpcError:
            return  # either end has hung up

    def Add(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._unary("Add", request, context)

    def Commit(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._unary("Commit", request, context)

    def Prepare(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._unary("Prepare", request, context)

    def Release(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._unary("Release", request, context)

    def List(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._unary("List", request, context)

    def Stat(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._unary("Stat", request, context)

    def Describe(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._unary("Describe", request, context)
