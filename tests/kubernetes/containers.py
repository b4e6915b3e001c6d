"""Podman with stores and a network of its own, and the image of deploy/container.

The base image comes from Debian's packages, since the tests reach no registry of images. It has the name of the base in
the Dockerfile.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.deploy.wheel import ROOT, build_wheel

BASE = "docker.io/library/python:3.13-slim-bookworm"
IMAGE = "localhost/rhino:0.1.0"
TOOLS = ("podman", "buildah", "runc", "mmdebstrap")
PACKAGES = "python3,python3-pip,python3-venv,ca-certificates"
SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
# Some machines forbid to raise limits, also to root. The pods of such a machine keep its limits.
RUNTIME = """#!{python}
import json, os, sys
arguments = sys.argv[1:]
def option(*names):
    return next((arguments[i + 1] for i, one in enumerate(arguments[:-1]) if one in names), None)
bundle, process = option("--bundle", "-b"), option("--process", "-p")
path = process or (f"{{bundle}}/config.json" if bundle else None)
if path and os.path.exists(path):
    with open(path) as file:
        content = json.load(file)
    started = content if process else content["process"]
    started.pop("rlimits", None)
    started["oomScoreAdj"] = max(0, started.get("oomScoreAdj") or 0)
    with open(path, "w") as file:
        json.dump(content, file)
os.execv("{runc}", ["runc", *arguments])
"""
STORAGE = """[storage]
driver = "overlay"
graphroot = "{folder}/storage"
runroot = "{folder}/run"
"""
CONTAINERS = """[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "{folder}/runtime"
tmp_dir = "{folder}/run/libpod"
static_dir = "{folder}/storage/libpod"
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
"""


def missing_tools() -> list[str]:
    """Programs that the harness needs and this machine lacks."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


class Podman:
    """`folder` holds everything. `network`: the first three bytes of the pods' addresses."""

    def __init__(self, folder: Path, network: str) -> None:
        self._folder = folder
        self.gateway = f"{network}.1"
        self._network = network
        folder.mkdir(parents=True)
        runtime = folder / "runtime"
        runtime.write_text(RUNTIME.format(python=sys.executable, runc=shutil.which("runc")))
        runtime.chmod(0o755)
        for name, text in (("storage.conf", STORAGE), ("containers.conf", CONTAINERS)):
            (folder / name).write_text(text.format(folder=folder))
        self._env = os.environ | {
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
            "CONTAINERS_CONF": str(folder / "containers.conf"),
        }

    def open(self) -> None:
        self("network", "create", "--subnet", f"{self._network}.0/24", "pods")

    def close(self) -> None:
        self.run("rm", "--all", "--force", "--time", "0")
        self.run("network", "rm", "--force", "pods")
        subprocess.run(["umount", str(self._folder / "storage/overlay")], capture_output=True, check=False)

    def __call__(self, *arguments: str, tool: str = "podman", timeout_s: float = 120.0) -> str:
        """Returns the standard output. AssertionError: the command failed."""
        done = self.run(*arguments, tool=tool, timeout_s=timeout_s)
        assert done.returncode == 0, f"{tool} {' '.join(arguments)}: {done.stderr[-3000:]}"
        return done.stdout

    def run(self, *arguments: str, tool: str = "podman", timeout_s: float = 600.0) -> subprocess.CompletedProcess[str]:
        command = [tool, *arguments]
        return subprocess.run(
            command, env=self._env, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=self._folder
        )

    def inspect(self, name: str) -> dict[str, object]:
        (found,) = json.loads(self("inspect", name))
        return dict(found)

    def build_image(self) -> None:
        """Builds the Dockerfile as it is."""
        base = self._folder / "base.tar"
        hooks = ('rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED', 'ln -sf python3 "$1"/usr/bin/python')
        options = [f"--customize-hook={hook}" for hook in hooks]
        make = ["--quiet", "--variant=minbase", f"--include={PACKAGES}", *options, "bookworm", str(base)]
        make += [str(SOURCES)] if SOURCES.exists() else []
        self(*make, tool="mmdebstrap", timeout_s=900)
        self("import", "--quiet", str(base), BASE)
        base.unlink()
        context = self._folder / "context"
        shutil.copytree(ROOT / "deploy", context / "deploy")
        shutil.copy(ROOT / ".dockerignore", context)
        (context / "dist").mkdir()
        (self._folder / "wheel").mkdir()
        shutil.copy(build_wheel(self._folder / "wheel"), context / "dist")
        options = ["--pull-never", "--network", "host", "--isolation", "chroot"]
        options += ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro", "--file", "deploy/container/Dockerfile"]
        self("bud", *options, "--tag", IMAGE, str(context), tool="buildah", timeout_s=900)

    def container(self, name: str, address: str, options: Sequence[str], what: Sequence[str]) -> None:
        """Starts a container on the network of the pods. `what`: image or root file system, and the command."""
        own = ["--detach", "--name", name, "--hostname", name[:63], "--network", "pods", "--ip", address, "--no-hosts"]
        self("run", *own, *options, *what)
