"""The HTTP application of the page: its files, the stream of documents, and the actions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from rhino.client.overview import query_names
from rhino.page.actions import Actions
from rhino.page.guard import peer_of
from rhino.page.sums import on_worker
from rhino.page.watcher import Watcher
from rhino_core import errors

FILES = Path(__file__).parent / "files"
BODY_BYTES_MAX = 64 * 1024
POLL_S = 0.05  # from a new document to its browsers
STATUS = (
    (errors.InvalidRequestError, 400),
    (errors.UnknownError, 404),
    (errors.AccessDeniedError, 403),
    (errors.UnavailableError, 503),
    (errors.RhinoError, 409),
)


def make_app(watcher: Watcher, actions: Actions, closing: Callable[[], bool]) -> Starlette:
    """`closing`: whether the process ends, so that streams end, too."""

    async def frames() -> AsyncIterator[bytes]:
        sent = 0
        while not closing():
            if watcher.number == sent:
                await asyncio.sleep(POLL_S)
            else:
                sent = watcher.number
                yield watcher.frame

    async def live(request: Request) -> Response:
        return StreamingResponse(frames(), media_type="text/event-stream")

    async def worker(request: Request) -> Response:
        """The virtual nodes on one worker."""
        overview, name = watcher.overview, request.query_params.get("id", "")
        found = [] if overview is None else await run_in_threadpool(_on_worker, overview, name)
        return JSONResponse({"worker": name, "queries": found})

    async def plan(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(actions.plan, await _body(request)))

    async def run(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(actions.run, await _body(request), peer_of(request.scope)))

    routes = [
        Route("/data/live", live),
        Route("/data/worker", worker),
        Route("/data/plan", plan, methods=["POST"]),
        Route("/data/run", run, methods=["POST"]),
        Mount("/", StaticFiles(directory=FILES, html=True)),
    ]
    return Starlette(routes=routes, exception_handlers={errors.RhinoError: _refused})


def _on_worker(overview: Any, name: str) -> list[dict[str, object]]:
    return list(on_worker(overview, name, query_names(overview.jobs)))


async def _body(request: Request) -> Any:
    """The JSON of a request. Raises InvalidRequestError."""
    data = b""
    async for chunk in request.stream():
        data += chunk if len(data) <= BODY_BYTES_MAX else b""  # the rest is read, so that the answer arrives
    if len(data) > BODY_BYTES_MAX:
        raise errors.InvalidRequestError(f"the request has more than {BODY_BYTES_MAX} bytes")
    try:
        return json.loads(data)
    except ValueError as error:
        raise errors.InvalidRequestError(f"the request is no JSON: {error}") from None


async def _refused(request: Request, error: Exception) -> Response:
    """As the commands report an error with `--json`."""
    status = next(status for kind, status in STATUS if isinstance(error, kind))
    return JSONResponse({"error": {"kind": type(error).__name__, "message": str(error)}}, status)
