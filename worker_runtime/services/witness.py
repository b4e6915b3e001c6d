"""The service of a witness: it keeps the journal of the cluster's managers beside the files of its store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from rhino_core.errors import InvalidRequestError, PreconditionError
from rhino_core.ids import Lane
from rhino_core.rpc import witnesses as convert
from rhino_core.witnesses.acceptor import Acceptor, Reply
from rhino_core.witnesses.messages import Request
from rhino_pb import witness_pb2 as pb
from rhino_pb import witness_pb2_grpc
from worker_runtime.storage.index.witnessed import WitnessTable
from worker_runtime.storage.store import Store

Context = grpc.aio.ServicerContext[Any, Any]


class WitnessService(witness_pb2_grpc.WitnessServicer):
    """See witness.proto. The uuid of the store is the name of the witness, so an empty disk has another name."""

    def __init__(self, store: Store, *, forget_journal: bool = False) -> None:
        self._store = store
        self._table = WitnessTable(store.index)
        if forget_journal:
            self._table.forget()
        self._name = self._table.name(store.incarnation.partition("/")[0])
        self._acceptor: Acceptor | None = None  # None: not read yet, or ahead of the disk
        self._current()
        self._synced: asyncio.Future[None] | None = None  # the newest sync, of all writes so far

    def _current(self) -> Acceptor:
        """Raises while the disk cannot be read: the witness answers nothing then."""
        if self._acceptor is None:
            self._acceptor = Acceptor(self._name, self._table.stored())
        return self._acceptor

    async def Identify(self, request: pb.IdentifyRequest, context: Context) -> pb.IdentifyReply:
        return pb.IdentifyReply(witness=self._name, cluster=self._current().cluster)

    async def Promise(self, request: pb.PromiseRequest, context: Context) -> pb.PromiseReply:
        return convert.promised_to_pb(await self._answer(request.witness, convert.promise_of(request)))

    async def Append(self, request: pb.AppendRequest, context: Context) -> pb.AppendReply:
        return convert.appended_to_pb(await self._answer(request.witness, convert.append_of(request)))

    async def AppendInParts(self, request_iterator: AsyncIterator[pb.AppendPart], context: Context) -> pb.AppendReply:
        whole = await anext(request_iterator, pb.AppendPart())
        if not whole.HasField("request"):
            raise InvalidRequestError("an append in parts has ended before it was complete")
        return await self.Append(whole.request, context)

    async def FetchRecords(self, request: pb.FetchRecordsRequest, context: Context) -> pb.FetchRecordsReply:
        return convert.fetched_to_pb(await self._answer(request.witness, convert.fetch_of(request)))

    async def _answer(self, witness: str, request: Request) -> Any:
        """The answer, once all writes so far are on disk. Raises UnavailableError if the disk fails."""
        if witness != self._name:
            raise PreconditionError(
                f"this is witness {self._name}, and not {witness}: it has lost its disk, or has the address of another"
            )
        *saves, reply = self._current().handle(request, now=0.0)
        assert isinstance(reply, Reply)
        if saves:
            try:
                self._table.write(saves)  # type: ignore[arg-type]  # all but the last effect
            except BaseException:
                self._acceptor = None  # what is not stored must not be acknowledged later
                raise
            self._synced = asyncio.ensure_future(self._store.syncer.sync(self._store.layout.written, Lane.COMMIT))
        if self._synced is not None:
            await asyncio.shield(self._synced)
        return reply.answer
