"""Pages of the site that are made from the code: command line, metrics, RPC, errors.

mkdocs calls it as a hook, so they are made in each build.
"""

from __future__ import annotations

import ast
import inspect
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "proto")]

from handover_manager.service.metrics import QUERY_FIGURES  # noqa: E402
from rhino.cli import exit_codes  # noqa: E402
from rhino.cli.examples import EXAMPLES  # noqa: E402
from rhino.cli.main import app  # noqa: E402
from rhino_core import errors  # noqa: E402
from rhino_core.setting import Declared, declared  # noqa: E402
from rhino_core.settings import ManagerSettings, SidecarSettings  # noqa: E402

METRIC_CLASSES = {"Counter", "Histogram", "Gauge", "CounterMetricFamily", "GaugeMetricFamily", "InfoMetricFamily"}
METRIC_HOMES = {
    "Both": ("rhino_core/metrics.py",),
    "Manager": ("replication_manager/service/metrics.py", "handover_manager/service/metrics.py"),
    "Sidecar": ("worker_runtime/metrics.py",),
}


DAEMONS: dict[str, Any] = {f"rhino {kind.DAEMON}": kind for kind in (SidecarSettings, ManagerSettings)}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages to those of the folder."""
    pages = {"cli": command_line, "settings": settings, "metrics": metrics, "rpc": rpc, "errors": error_page}
    for name, page in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content="\n".join(page()) + "\n"))
    return files


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def command_line() -> Iterator[str]:
    group: Any = typer.main.get_command(app)
    yield "# Command line\n"
    yield f"{inspect.cleandoc(group.help or '')}\n"
    yield f"{exit_codes.HELP}\n"
    for name, command in sorted(group.commands.items()):
        yield from _command(f"rhino {name}", command, "##")


def _command(name: str, command: Any, heading: str) -> Iterator[str]:
    yield f"{heading} {name}\n"
    within = getattr(command, "commands", None)
    if within:
        yield f"{inspect.cleandoc(command.help or '')}\n"
        for inner, below in within.items():
            yield from _command(f"{name} {inner}", below, f"{heading}#")
        return
    context = typer.Context(command, info_name=name)
    yield f"`{name} {' '.join(command.collect_usage_pieces(context))}`\n"
    yield f"{inspect.cleandoc(command.help or '')}\n"
    kind = DAEMONS.get(name)
    elsewhere = {"help"} | ({one.field for one in declared(kind)} if kind else set())
    if kind:
        yield f"Its settings are on [Settings of the daemons](settings.md#{name.replace(' ', '-')}). Beside them:\n"
    rows = [_option(parameter, context) for parameter in command.params if parameter.name not in elsewhere]
    yield table(("option", "default", "meaning"), rows)
    yield "\n".join(("```sh", *EXAMPLES[name.removeprefix("rhino ")], "```")) + "\n"


def _option(parameter: Any, context: Any) -> tuple[str, ...]:
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    if parameter.param_type_name == "argument":
        names = f"`{parameter.metavar or (parameter.name or '').upper()}`"
    default = parameter.get_default(context)
    unset = default is None or default is False or default in ((), [], "")
    shown = (
        "required"
        if parameter.required
        else ""
        if unset
        else f"`{default:g}`"
        if isinstance(default, float)
        else f"`{default}`"
    )
    meaning = " ".join((getattr(parameter, "help", None) or "").split())
    variable = getattr(parameter, "envvar", None)
    return names, shown, meaning + (f" Environment: `{variable}`." if variable else "")


def settings() -> Iterator[str]:
    yield "# Settings of the daemons\n"
    yield (
        "Each setting has one name, in three forms: a flag, an environment variable, and a key of the TOML file that "
        "`--config` (or `RHINO_SIDECAR_CONFIG`, `RHINO_MANAGER_CONFIG`) names. Flags come first, then environment "
        "variables, then the file, then the defaults. `--print-settings` shows the settings in force and where they "
        "come from. The settings of Spark applications are on [another page](../user/settings.md).\n"
    )
    for name, kind in DAEMONS.items():
        yield f"## {name}\n"
        yield table(("setting", "default", "must be", "meaning"), [_setting(one) for one in declared(kind)])


def _setting(one: Declared) -> tuple[str, ...]:
    variables = " ".join(f"`{name}`" for name in (one.variable, one.about.also) if name)
    key = "not in a file" if one.about.one_start else f"`{one.key}`"
    quoted = f"`{one.default_text}`" if one.default not in (None, "") else one.default_text or "required"
    return f"`{one.flag}` {variables} {key}", quoted, one.about.rule.allowed, one.about.help


def metrics() -> Iterator[str]:
    yield "# Metrics\n"
    yield "`--metrics-port` of a manager and of a sidecar serves `GET /metrics` in the text format of Prometheus.\n"
    yield "Both also have the figures of their process: `process_resident_memory_bytes`, `process_cpu_seconds_total`, "
    yield "`process_open_fds`, `process_max_fds`, `process_start_time_seconds`, `process_virtual_memory_bytes`.\n"
    for process, homes in METRIC_HOMES.items():
        rows = [row for home in homes for row in _metrics_of(ROOT / home)]
        if process == "Manager":
            rows += [(f"`rhino_query_{what}`", "gauge", "`query`", about) for what, about in QUERY_FIGURES]
        yield f"## {process}\n"
        yield table(("metric", "kind", "labels", "meaning"), sorted(set(rows)))


def _metrics_of(path: Path) -> Iterator[tuple[str, ...]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in METRIC_CLASSES):
            continue
        if not node.args or not isinstance(node.args[0], ast.Constant):
            continue  # QUERY_FIGURES, or a Counter of collections
        name, meaning = (ast.literal_eval(argument) for argument in node.args[:2])
        listed = [k.value for k in node.keywords if k.arg == "labels"] or [
            a for a in node.args[2:] if isinstance(a, ast.List)
        ]
        labels = ", ".join(f"`{label}`" for label in (ast.literal_eval(listed[0]) if listed else ()))
        kind = node.func.id.removesuffix("MetricFamily").lower()
        yield f"`{name}{'_total' if kind == 'counter' else ''}`", kind, labels, meaning


def rpc() -> Iterator[str]:
    yield "# RPC\n"
    yield "The services and messages between Rhino's processes, as their `.proto` files say them.\n"
    for file in _descriptors():
        comments = _comments(file)
        for i, service in enumerate(file.service):
            yield f"## {service.name}\n"
            yield f"`{file.name}`. {comments.get((6, i), '')}\n"
            rows = [
                (
                    f"`{method.name}`",
                    _message(method.input_type, method.client_streaming),
                    _message(method.output_type, method.server_streaming),
                    comments.get((6, i, 2, j), ""),
                )
                for j, method in enumerate(service.method)
            ]
            yield table(("call", "request", "reply", "meaning"), rows)
    for file in _descriptors():
        comments = _comments(file)
        yield f"## Messages of {file.name}\n"
        for i, message in enumerate(file.message_type):
            yield f"### {message.name}\n"
            if said := comments.get((4, i)):
                yield f"{said}\n"
            rows = [(f"`{f.name}`", str(f.number), comments.get((4, i, 2, j), "")) for j, f in enumerate(message.field)]
            if rows:
                yield table(("field", "number", "meaning"), rows)


def _descriptors() -> list[FileDescriptorProto]:
    sources = sorted(path.relative_to(ROOT / "proto").as_posix() for path in (ROOT / "proto/rhino_pb").glob("*.proto"))
    with tempfile.NamedTemporaryFile() as out:
        arguments = [
            "protoc",
            f"-I{ROOT / 'proto'}",
            "--include_source_info",
            f"--descriptor_set_out={out.name}",
            *sources,
        ]
        if protoc.main(arguments):
            raise RuntimeError(f"protoc failed for {sources}")
        return list(FileDescriptorSet.FromString(Path(out.name).read_bytes()).file)


def _comments(file: FileDescriptorProto) -> dict[tuple[int, ...], str]:
    """Of services, calls, messages and fields, by their path in the descriptor."""
    places = file.source_code_info.location
    return {tuple(place.path): _comment(place.leading_comments, place.trailing_comments) for place in places}


def _message(name: str, stream: bool) -> str:
    return f"{'stream of ' if stream else ''}`{name.rpartition('.')[2]}`"


def _comment(*parts: str) -> str:
    return " ".join(" ".join(parts).split())


def error_page() -> Iterator[str]:
    yield "# Errors and exit codes\n"
    yield f"{exit_codes.HELP}\n"
    rows = [
        (f"`{name}`", str(exit_codes.of_error(kind.__new__(kind))), _comment(inspect.getdoc(kind) or ""))
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.RhinoError)
    ]
    yield table(("error", "exit code", "meaning"), rows)
