"""Calls about drains reach a manager that is being restarted."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from rhino import HandoverClient
from rhino_pb import handover_pb2 as pb


class Manager:
    """It answers the second call to DrainWorker, the only one that it serves."""

    def __init__(self) -> None:
        self.calls: list[bool] = []

    def DrainWorker(self, request: pb.DrainRequest, context: grpc.ServicerContext) -> pb.DrainStatus:
        self.calls.append(request.cancel)
        if len(self.calls) == 1:
            context.abort(grpc.StatusCode.UNAVAILABLE, "it starts")
        return pb.DrainStatus(worker=request.worker)


@pytest.fixture
def manager() -> Iterator[tuple[Manager, str]]:
    server, its = grpc.server(ThreadPoolExecutor(1)), Manager()
    handler = grpc.unary_unary_rpc_method_handler(
        its.DrainWorker, pb.DrainRequest.FromString, pb.DrainStatus.SerializeToString
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("rhino.v1.HandoverManager", {"DrainWorker": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield its, f"127.0.0.1:{port}"
    server.stop(0).wait()


@pytest.mark.parametrize("cancel", [False, True])
def test_a_drain_is_tried_again(manager: tuple[Manager, str], cancel: bool) -> None:
    its, address = manager
    with HandoverClient(address) as client:
        assert client.drain("w1", cancel=cancel).worker == "w1"
    assert its.calls == [cancel, cancel]
