"""`rhino sidecar` and `rhino manager`. Their flags are made from the settings classes."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from rhino.cli.output import say
from rhino.daemons import daemon
from rhino.daemons.loading import S, load
from rhino_core.log import configure_logging
from rhino_core.setting import Declared, declared
from rhino_core.settings import ManagerSettings, SidecarSettings
from rhino_core.version import rhino_version

log = logging.getLogger(__name__)
ConfigOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="TOML file with settings. Flags and environment variables override it."),
]
PrintOption = Annotated[
    bool, typer.Option("--print-settings", help="Print the settings in force as a config file, and exit.")
]
ParentOption = Annotated[bool, typer.Option("--exit-with-parent", help="Stop when the parent process ends.")]
Serve = Callable[[S], Coroutine[Any, Any, None]]


def _command(kind: type[S], serve: Serve[S], text: str) -> Callable[..., None]:
    """Returns a command that loads the settings of a daemon and runs it."""

    def command(config: Path | None, print_settings: bool, exit_with_parent: bool, **flags: str | bool | None) -> None:
        given = {name: value for name, value in flags.items() if value is not None}
        loaded = load(kind, given, os.environ, config or _config_of(kind))
        if print_settings:
            for line in loaded.lines():
                say(line)
            return
        configure_logging(loaded.settings.log_level)
        if loaded.unknown:
            log.warning("environment variables name no setting", extra={"variables": ", ".join(loaded.unknown)})
        daemon.run(serve(loaded.settings), exit_with_parent=exit_with_parent)

    own = {"config": (ConfigOption, None), "print_settings": (PrintOption, False)}
    own |= {"exit_with_parent": (ParentOption, False)}
    options = {one.field: (_option(one), None) for one in declared(kind)} | own
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in options.items()
    ]
    command.__signature__ = inspect.Signature(parameters, return_annotation=None)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = text
    return command


def _config_of(kind: type[S]) -> Path | None:
    name = os.environ.get(f"RHINO_{kind.DAEMON.upper()}_CONFIG", "")
    return Path(name) if name else None


def _option(one: Declared) -> Any:
    if one.kind is bool:
        return Annotated[bool | None, typer.Option(f"{one.flag}/--no-{one.flag[2:]}", help=one.about.help)]
    text = f"{one.about.help} {f'Default: {one.default_text}.' if one.default_text else 'Required.'}"
    return Annotated[str | None, typer.Option(one.flag, metavar=one.metavar, help=text)]


async def _sidecar(settings: SidecarSettings) -> None:
    from rhino_core.ids import Worker
    from worker_runtime.sidecar import run_sidecar

    def ready(worker: Worker) -> None:
        places = {"peer_address": worker.peer_address, "socket": str(settings.socket)}
        daemon.announce({"service": "sidecar", "version": rhino_version(), "worker_id": worker.worker_id, **places})

    await run_sidecar(settings, ready)


async def _manager(settings: ManagerSettings) -> None:
    from rhino.daemons.manager_process import run_manager

    def ready(address: str) -> None:
        daemon.expect_a_large_heap()
        daemon.announce({"service": "manager", "version": rhino_version(), "address": address})

    await run_manager(settings, ready)


def register(app: typer.Typer, panel: str) -> None:
    """Adds both commands to `app`, below one heading of its help."""
    sources = "Each setting can also be an environment variable ({}) or a key of the file of --config."
    about_sidecar = f"Run the sidecar of this worker until SIGTERM or Ctrl-C.\n\n{sources.format('RHINO_SIDECAR_...')}"
    about_manager = f"Run the manager until SIGTERM or Ctrl-C.\n\n{sources.format('RHINO_MANAGER_...')}"
    app.command("sidecar", rich_help_panel=panel)(_command(SidecarSettings, _sidecar, about_sidecar))
    app.command("manager", rich_help_panel=panel)(_command(ManagerSettings, _manager, about_manager))
