"""No function of the packages has more than eight parameters: more of them are a data type that has no name yet."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "benchmarks",
    "examples",
    "workloads",
    "rhino",
    "spark_connector",
    "query_evolution",
    "handover_manager",
    "replication_manager",
    "worker_runtime",
    "rhino_model",
    "rhino_archive",
    "rhino_core",
)
PARAMETERS_MAX = 8  # without self; `*rest` and `**more` count as one each


def functions(node: ast.AST, within: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """All functions below the node, with their names as in `__qualname__`."""
    for child in ast.iter_child_nodes(node):
        name = within
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{within}.{child.name}".lstrip(".")
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, child
        yield from functions(child, name)


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    given = function.args
    more = [one for one in (given.vararg, given.kwarg) if one is not None]
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, *more)]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def too_many(source: str) -> list[str]:
    return [name for name, found in functions(ast.parse(source)) if len(parameters(found)) > PARAMETERS_MAX]


def test_no_function_has_more_than_eight_parameters() -> None:
    paths = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    found = {f"{path.relative_to(ROOT).as_posix()}: {name}" for path in paths for name in too_many(path.read_text())}
    assert found == set()


def test_every_kind_of_parameter_counts() -> None:
    nine = "a, b, /, c, d, *, e, f, g, h, i"
    source = f"""
class A:
    async def asynchronous(self, {nine}): ...
    def eight(self, {nine.removesuffix(", i")}): ...
    def outer():
        def inner({nine}): ...
def rest(a, b, c, d, e, f, g, *h, **i): ...
"""
    assert too_many(source) == ["A.asynchronous", "A.outer.inner", "rest"]
