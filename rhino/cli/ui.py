"""`rhino ui`: the options of the page, and what its start prints. The page itself is in `rhino/page`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rhino.cli.arguments import seconds
from rhino.cli.option_groups import expanded
from rhino.cli.options import ManagerOption
from rhino.cli.output import say
from rhino_core.ids import is_loopback
from rhino_core.log import configure_logging
from rhino_core.settings import DEFAULT_MANAGER


@dataclass(frozen=True, slots=True)
class UiOptions:
    """Where the page is served, and what may be done on it."""

    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page. 0: any free one.")] = 7480
    host: Annotated[str, typer.Option(help="Address to listen on. By default only this machine reaches the page.")] = (
        "127.0.0.1"
    )
    opens: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser of this machine.")] = (
        False
    )
    read_only: Annotated[bool, typer.Option("--read-only", help="Without actions: nothing can be changed.")] = False
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Serve HTTPS with this certificate (PEM), and --tls-key.")
    ] = None
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="The key of --tls-cert (PEM).")] = None
    audit_log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A line for each action and refused request goes there.")
    ] = None
    interval_s: Annotated[
        float,
        typer.Option(
            help="Seconds between two looks at the manager; at least three times the duration of a look.",
            callback=seconds("--interval-s", positive=True),
        ),
    ] = 2.0


def ui(asked: UiOptions, manager: ManagerOption = DEFAULT_MANAGER) -> None:
    """Serve a page with the live state of the cluster, until Ctrl-C. It can move, drain and cancel.

    The printed address has a token, anew at each start: whoever has it sees all of the page, and may do with it what
    the certificate of this command allows. The process asks the manager as `rhino status` does.
    """
    from rhino.page.serving import Page, PageSettings, open_in_browser

    files = (str(one) if one else "" for one in (asked.tls_cert, asked.tls_key, asked.audit_log))
    page = Page(PageSettings(manager, asked.host, asked.port, asked.interval_s, asked.read_only, *files))
    configure_logging("info")
    if not is_loopback(asked.host) and not asked.tls_cert:
        say(
            f"warning: --host {asked.host} without --tls-cert and --tls-key: the token and all data go over the "
            "network unencrypted. Whoever reads them there can act as this command",
            error=True,
        )
    say(page.address)
    sys.stdout.flush()  # for whoever reads it through a pipe
    if asked.opens:
        open_in_browser(page.address, page.run)
    else:
        page.run()


def register(app: typer.Typer, panel: str) -> None:
    app.command("ui", rich_help_panel=panel)(expanded(ui))
