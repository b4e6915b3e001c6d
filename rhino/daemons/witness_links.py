"""Calls to the witnesses of the journal. They are blocking gRPC's calls with callbacks, free of the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc

from rhino_core.errors import RhinoError
from rhino_core.rpc import witnesses as convert
from rhino_core.rpc.channel import sync_channel
from rhino_core.rpc.gate import checked
from rhino_core.rpc.parts import PART_BYTES, in_parts
from rhino_core.rpc.status import error_of
from rhino_core.security.identity import Role
from rhino_core.security.transport import Expected, Transport
from rhino_core.witnesses.messages import Answer, Append, Fetch, Promise, Request
from rhino_pb import witness_pb2 as pb
from rhino_pb import witness_pb2_grpc

log = logging.getLogger(__name__)
SNAPSHOT_S = 30.0  # for a large request


@dataclass(frozen=True, slots=True)
class Identified:
    """`witness`: the name of its disk. `cluster`: of its journal; empty: it has none."""

    witness: str
    cluster: str


class WitnessLinks:
    """`addresses`: worker ids by "host:port". `timeout_s`: of one call."""

    def __init__(self, addresses: Mapping[str, str], transport: Transport, timeout_s: float) -> None:
        self.addresses = dict(addresses)
        self._timeout_s = timeout_s
        self._channels = {
            address: sync_channel(address, transport, Expected(Role.WORKER, worker))
            for address, worker in addresses.items()
        }
        self._stubs: dict[str, witness_pb2_grpc.WitnessStub] = {
            address: witness_pb2_grpc.WitnessStub(channel) for address, channel in self._channels.items()
        }
        self._address_of: dict[str, str] = {}  # by the name of a witness
        self._failing: dict[str, str] = {}  # by address: the newest error in the log

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()

    async def identify(self) -> dict[str, Identified]:
        """The witnesses that answer, by address."""
        calls = {address: asyncio.to_thread(self._identify, address) for address in self.addresses}
        answers = await asyncio.gather(*calls.values())
        found = {address: answer for address, answer in zip(calls, answers, strict=True) if answer is not None}
        self._address_of |= {one.witness: address for address, one in found.items()}
        return found

    def _identify(self, address: str) -> Identified | None:
        try:
            reply = self._stubs[address].Identify(pb.IdentifyRequest(), timeout=self._timeout_s)
            checked(reply, f"witness at {address}")
        except (grpc.RpcError, RhinoError) as error:
            self._complain(address, error)
            return None
        return Identified(reply.witness, reply.cluster)

    def send(self, witness: str, request: Request, answered: Callable[[Answer], None]) -> None:
        """Calls `answered`, in any thread, unless the witness does not answer in time."""
        address = self._address_of.get(witness)
        if address is None:
            return
        call, read = self._called(witness, address, request)

        def done(ended: Any) -> None:
            try:
                reply = checked(ended.result(), f"witness at {address}")
            except (grpc.RpcError, grpc.FutureCancelledError, RhinoError) as error:
                self._complain(address, error)
                return
            self._failing.pop(address, None)
            answered(read(reply))

        call.add_done_callback(done)

    def _called(self, witness: str, address: str, request: Request) -> tuple[Any, Callable[[Any], Answer]]:
        """The call, and a function that reads its reply."""
        stub: Any = self._stubs[address]
        match request:
            case Promise():
                call = stub.Promise.future(convert.promise_to_pb(witness, request), timeout=self._timeout_s)
                return call, lambda reply: convert.promised_of(witness, request, reply)
            case Append():
                message = convert.append_to_pb(witness, request)
                if message.ByteSize() <= PART_BYTES:
                    call = stub.Append.future(message, timeout=self._timeout_s)
                else:
                    parts = in_parts(pb.AppendPart(request=message))
                    call = stub.AppendInParts.future(parts, timeout=SNAPSHOT_S)
                return call, lambda reply: convert.appended_of(witness, request, reply)
            case Fetch():
                call = stub.FetchRecords.future(convert.fetch_to_pb(witness, request), timeout=self._timeout_s)
                return call, lambda reply: convert.fetched_of(witness, request, reply)

    def _complain(self, address: str, error: Exception) -> None:
        """Logs a new error of this witness."""
        known = error_of(error, f"witness at {address}") if isinstance(error, grpc.RpcError) else error
        if self._failing.get(address) != type(known).__name__:
            self._failing[address] = type(known).__name__
            log.warning("a witness does not answer", extra={"witness": address, "error": str(known)})
