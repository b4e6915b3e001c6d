"""An API server of Kubernetes in memory: objects, watches, owner references and graceful deletion of pods.

It has the calls of Spark's scheduler backend, and no schema: `kubernetes_validate` checks the manifests elsewhere.
"""

from __future__ import annotations

import copy
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

Object = dict[str, Any]
KINDS = {
    "pods": "Pod",
    "configmaps": "ConfigMap",
    "secrets": "Secret",
    "services": "Service",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "networkpolicies": "NetworkPolicy",  # Spark's submission makes one
}
WATCH_S = 5.0  # between looks at a watch without events


@dataclass(frozen=True)
class Event:
    version: int
    plural: str
    type: str
    object: Object


def matches(one: Object, selector: str) -> bool:
    """Whether the labels fit a selector of `a=b`, `a!=b`, `a in (b,c)` and `a`."""
    labels = one["metadata"].get("labels", {})
    depth, terms = 0, [""]
    for letter in selector:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            terms.append("")
        else:
            terms[-1] += letter
    return all(_fits(labels, term.strip()) for term in terms if term.strip())


def _fits(labels: dict[str, str], term: str) -> bool:
    if "!=" in term:
        key, value = term.split("!=")
        return labels.get(key) != value
    if " in " in term:
        key, values = term.split(" in ")
        return labels.get(key.strip()) in [value.strip() for value in values.strip(" ()").split(",")]
    if "=" in term:
        key, value = term.replace("==", "=").split("=")
        return labels.get(key) == value
    return term in labels


class Objects:
    """All objects and their events. `pod_added` and `pod_deleting` tell the kubelets."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.pod_added: Callable[[Object], None] = lambda pod: None
        self.pod_deleting: Callable[[Object, float], None] = lambda pod, grace_s: self.gone("pods", pod)
        self._objects: dict[str, dict[str, Object]] = {plural: {} for plural in KINDS}
        self._events: list[Event] = []
        self._version = 1

    @property
    def version(self) -> int:
        return self._version

    def list(self, plural: str, selector: str = "") -> list[Object]:
        with self.changed:
            return [copy.deepcopy(one) for one in self._objects[plural].values() if matches(one, selector)]

    def get(self, plural: str, name: str) -> Object | None:
        with self.changed:
            return copy.deepcopy(self._objects[plural].get(name))

    def create(self, plural: str, one: Object) -> Object | None:
        """None: there is one of this name."""
        with self.changed:
            metadata = one["metadata"]
            if "generateName" in metadata:
                metadata.setdefault("name", metadata["generateName"] + uuid.uuid4().hex[:5])
            if metadata["name"] in self._objects[plural]:
                return None
            metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": now()}
            one = {"apiVersion": "v1", "kind": KINDS[plural], **one}
            if plural == "pods":
                one["status"] = {"phase": "Pending"}
            self._objects[plural][metadata["name"]] = one
            self._note("ADDED", plural, one)
        if plural == "pods":
            self.pod_added(copy.deepcopy(one))
        return one

    def update(self, plural: str, name: str, change: Callable[[Object], None]) -> Object | None:
        with self.changed:
            one = self._objects[plural].get(name)
            if one is not None:
                change(one)
                self._note("MODIFIED", plural, one)
            return copy.deepcopy(one)

    def delete(self, plural: str, name: str, grace_s: float | None = None) -> Object | None:
        """Deletes an object. A pod goes once its kubelet has ended it."""
        one = self.get(plural, name)
        if one is None:
            return None
        if plural != "pods":
            self.gone(plural, one)
        elif "deletionTimestamp" not in one["metadata"]:
            self.update(plural, name, lambda pod: pod["metadata"].update(deletionTimestamp=now()))
            usual_s = one["spec"].get("terminationGracePeriodSeconds", 30)
            self.pod_deleting(one, usual_s if grace_s is None else grace_s)
        return one

    def gone(self, plural: str, one: Object) -> None:
        """Removes the object, and deletes those that it owns."""
        with self.changed:
            if self._objects[plural].pop(one["metadata"]["name"], None) is None:
                return
            self._note("DELETED", plural, one)
            owned = [
                (kind, name)
                for kind, objects in self._objects.items()
                for name, other in objects.items()
                if one["metadata"]["uid"] in [owner["uid"] for owner in other["metadata"].get("ownerReferences", ())]
            ]
        for kind, name in owned:
            self.delete(kind, name)

    def watch(self, plural: str, selector: str, name: str, since: int) -> Iterator[Event | None]:
        """Events after the version `since`, and None after a while without one."""
        while True:
            with self.changed:
                found = [
                    event
                    for event in self._events
                    if event.version > since and event.plural == plural and matches(event.object, selector)
                ]
                if not found:
                    self.changed.wait(WATCH_S)
            for event in found:
                since = event.version
                if name in ("", event.object["metadata"]["name"]):
                    yield event
            if not found:
                yield None

    def _note(self, type_: str, plural: str, one: Object) -> None:
        self._version += 1
        one["metadata"]["resourceVersion"] = str(self._version)
        self._events.append(Event(self._version, plural, type_, copy.deepcopy(one)))
        self.changed.notify_all()


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class ApiServer:
    """Serves the objects over HTTP until closed."""

    def __init__(self, objects: Objects, host: str) -> None:
        handler = type("Handler", (_Handler,), {"objects": objects})
        self._server = ThreadingHTTPServer((host, 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://{host}:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: Objects

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PATCH(self) -> None:
        self._answer("PATCH")

    def do_PUT(self) -> None:
        self._answer("PUT")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        try:
            self._answered(method)
        except ConnectionError:  # the client has gone
            self.close_connection = True

    def _answered(self, method: str) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
        match url.path.strip("/").split("/"):
            case ["version"]:
                self._say(200, {"major": "1", "minor": "34", "gitVersion": "v1.34.0"})
            case [*_, "v1", "namespaces", _, plural] if plural in KINDS:
                self._collection(method, plural, query, body)
            case [*_, "v1", "namespaces", _, plural, name] if plural in KINDS:
                self._one(method, plural, name, body)
            case _:
                self._say(404, _status(404, f"this server does not have {url.path}"))

    def _collection(self, method: str, plural: str, query: dict[str, str], body: Object) -> None:
        selector = query.get("labelSelector", "")
        if method == "POST":
            made = self.objects.create(plural, body)
            self._say(201, made) if made else self._say(409, _status(409, "it exists", "AlreadyExists"))
        elif method == "DELETE":
            for one in self.objects.list(plural, selector):
                self.objects.delete(plural, one["metadata"]["name"])
            self._say(200, _status(200, ""))
        elif query.get("watch"):
            self._watch(plural, selector, query)
        else:
            metadata = {"resourceVersion": str(self.objects.version)}
            items = self.objects.list(plural, selector)
            self._say(200, {"kind": f"{KINDS[plural]}List", "apiVersion": "v1", "metadata": metadata, "items": items})

    def _one(self, method: str, plural: str, name: str, body: Any) -> None:
        match method:
            case "DELETE":
                found = self.objects.delete(plural, name, body.get("gracePeriodSeconds"))
            case "PUT":
                found = self.objects.update(plural, name, lambda one: one.update(body))
            case "PATCH":
                found = self.objects.update(plural, name, lambda one: patch(one, body))
                if found is None and "apply-patch" in self.headers.get("Content-Type", ""):
                    found = self.objects.create(plural, body)
            case _:
                found = self.objects.get(plural, name)
        self._say(200, found) if found else self._say(404, _status(404, f"{plural} {name} not found", "NotFound"))

    def _watch(self, plural: str, selector: str, query: dict[str, str]) -> None:
        if self.headers.get("Upgrade"):  # without WebSockets the client takes plain HTTP
            self._say(503, _status(503, "no WebSockets here"))
            return
        fields = dict(one.split("=", 1) for one in query.get("fieldSelector", "").split(",") if "=" in one)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        since = int(query.get("resourceVersion") or 0)
        for event in self.objects.watch(plural, selector, fields.get("metadata.name", ""), since):
            if event is not None:
                line = json.dumps({"type": event.type, "object": event.object}).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.wfile.flush()

    def _say(self, code: int, answer: Object | None) -> None:
        body = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def patch(one: Object, change: Any) -> None:
    """Applies a JSON patch (a list), or a merge patch."""
    if isinstance(change, dict):
        for key, value in change.items():
            if isinstance(value, dict) and isinstance(one.get(key), dict):
                patch(one[key], value)
            elif value is None:
                one.pop(key, None)
            else:
                one[key] = value
        return
    for step in change:
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].strip("/").split("/")]
        at = one
        for part in parents:
            at = at.setdefault(part, {})
        if step["op"] == "remove":
            at.pop(last, None)
        else:
            at[last] = step["value"]


def _status(code: int, message: str, reason: str = "") -> Object:
    status = "Success" if code < 400 else "Failure"
    return {"kind": "Status", "apiVersion": "v1", "status": status, "code": code, "message": message, "reason": reason}
