"""The pinned packages are complete, have hashes, and are versions that pyproject.toml allows."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from spark_connector.spark_home import SUPPORTED
from tools.locks import FOLDER, LOCKS, ROOT, Lock, kept

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OWN = canonicalize_name(PROJECT["name"])
PYTHONS = [line.split(" :: ")[-1] for line in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", line)]
PIN = re.compile(r"^(?P<pin>[A-Za-z0-9][^\\\n]*?) ?\\\n(?P<hashes>(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.M)


def pins(lock: Lock) -> list[Requirement]:
    return [Requirement(found["pin"]) for found in PIN.finditer(lock.path.read_text())]


def required(extras: Sequence[str]) -> Iterator[Requirement]:
    """What the project needs with these extras, which may name further extras of the project."""
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in PROJECT["optional-dependencies"][extra])]
    for requirement in map(Requirement, lines):
        if canonicalize_name(requirement.name) == OWN:
            yield from required(sorted(requirement.extras))
        else:
            yield requirement


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_each_line_is_a_pin_with_hashes(lock: Lock) -> None:
    text = lock.path.read_text()
    rest = PIN.sub("", text)
    assert rest == lock.header
    assert all(str(pin.specifier).startswith("==") for pin in pins(lock))


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("lock", [lock for lock in LOCKS if not lock.only], ids=lambda lock: lock.name)
def test_each_required_package_is_pinned_to_a_version_that_is_allowed(lock: Lock, python: str) -> None:
    environment = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    pinned: dict[str, str] = {}
    for pin in pins(lock):
        if pin.marker is None or pin.marker.evaluate(environment):
            assert canonicalize_name(pin.name) not in pinned, f"{pin.name} has two versions"
            pinned[canonicalize_name(pin.name)] = str(pin.specifier).removeprefix("==")
    missing = [str(one) for one in required(lock.extras) if canonicalize_name(one.name) not in pinned]
    assert missing == [], "run `make locks`"
    wrong = [str(one) for one in required(lock.extras) if pinned[canonicalize_name(one.name)] not in one.specifier]
    assert wrong == [], "run `make locks`"


def test_each_older_spark_has_its_pins() -> None:
    found = {lock.name for lock in LOCKS}
    assert {f"spark-{version}" for version in SUPPORTED[:-1]} <= found
    for version in SUPPORTED[:-1]:
        (lock,) = [lock for lock in LOCKS if lock.name == f"spark-{version}"]
        assert {pin.name: str(pin.specifier).startswith(f"=={version}.") for pin in pins(lock)}["pyspark"]


def test_no_other_file_lies_beside_them() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {lock.path.name for lock in LOCKS}


def test_of_a_resolved_set_only_the_named_packages_are_kept() -> None:
    wanted = "ab==2 ; sys_platform == 'x' \\\n    --hash=sha256:2\n"
    text = f"a==1 \\\n    --hash=sha256:1\n{wanted}b==3 \\\n    --hash=sha256:3\n"
    assert kept(text, ("ab",)) == wanted
    assert kept(text, ()) == text
