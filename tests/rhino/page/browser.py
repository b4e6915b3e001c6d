"""A real browser: Debian's Chromium, driven by its own driver over the WebDriver protocol."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.rhino_core.support.metrics import free_port

ABSENT = "Chromium is not installed: apt-get install chromium chromium-driver"
TIMEOUT_S = 30.0


def is_absent() -> bool:
    return shutil.which("chromium") is None or shutil.which("chromedriver") is None


class Browser:
    """One window. `run` executes JavaScript there, and returns its result."""

    def __init__(self, url: str) -> None:
        self._url = url

    def call(self, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}{path}", data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None

    def open(self, address: str) -> None:
        self.call("/url", {"url": address})

    def run(self, script: str, *arguments: object) -> Any:
        return self.call("/execute/sync", {"script": script, "args": list(arguments)})

    def until(self, script: str, what: str) -> Any:
        """The value of an expression once it is true."""
        deadline = time.monotonic() + TIMEOUT_S
        while not (found := self.run(f"return {script}")):
            assert time.monotonic() < deadline, f"{what}: not within {TIMEOUT_S} s; {self.log()}"
            time.sleep(0.05)
        return found

    def press(self, keys: str) -> None:
        """Keys to the element with the focus. Tab is "\\ue004", Enter "\\ue007", Escape "\\ue00c"."""
        pressed = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.call("/actions", {"actions": [{"type": "key", "id": "keys", "actions": pressed}]})

    def log(self) -> list[str]:
        """Messages of the console since the last call: also violations of the content security policy."""
        return [entry["message"] for entry in self.call("/se/log", {"type": "browser"})]

    def picture(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.call("/screenshot")))


@contextlib.contextmanager
def browser(*, width: int = 1280, height: int = 900, dark: bool = False, phone: bool = False) -> Iterator[Browser]:
    """Starts driver and browser. `phone`: with a display of this size, as of a phone."""
    port = free_port()
    arguments = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        f"--window-size={width},{height}",
        "--hide-scrollbars",
    ]
    with tempfile.TemporaryDirectory(prefix="chromium-") as profile:
        arguments.append(f"--user-data-dir={profile}")
        options: dict[str, Any] = {"args": arguments}
        if phone:
            options["mobileEmulation"] = {"deviceMetrics": {"width": width, "height": height, "pixelRatio": 2}}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            root = Browser(f"http://127.0.0.1:{port}")
            deadline = time.monotonic() + TIMEOUT_S
            while not _is_ready(root):
                assert time.monotonic() < deadline, "chromedriver does not start"
                time.sleep(0.05)
            session = root.call("/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
            made = Browser(f"http://127.0.0.1:{port}/session/{session}")
            scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            made.call("/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": {"features": [scheme]}})
            yield made
            urllib.request.urlopen(
                urllib.request.Request(f"http://127.0.0.1:{port}/session/{session}", method="DELETE"), timeout=TIMEOUT_S
            ).close()
        finally:
            driver.terminate()
            driver.wait(TIMEOUT_S)


def _is_ready(root: Browser) -> bool:
    try:
        return bool(root.call("/status")["ready"])
    except OSError:
        return False
