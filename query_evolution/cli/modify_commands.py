"""`rhino modify` and its commands, `rhino modifications` and `rhino restarts`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from query_evolution.cli.modify import (
    CanaryOptions,
    FunctionOption,
    TableOptions,
    WaitOptions,
    carry_out,
    load_functions,
    parse_columns,
    plain,
    show,
    show_list,
)
from query_evolution.cli.restarts import restarts
from query_evolution.modify.jars import jar_function
from query_evolution.modify.ledger import View
from query_evolution.modify.modifications import SAMPLE_ROWS, Modifications
from query_evolution.modify.record import Kind
from rhino.cli.option_groups import expanded
from rhino.cli.options import JsonOption
from rhino.cli.output import say_json
from rhino_core.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class CodeOptions:
    """The new version of a function."""

    code: Annotated[
        str,
        typer.Option(
            metavar="FILE.py:NAME",
            help="The new Python function, made with @udf, @pandas_udf, state_function or processor_function.",
        ),
    ] = ""
    jar: Annotated[
        str, typer.Option(metavar="FILE.jar", help="For a function of Scala or Java: a jar of 16 MiB at most.")
    ] = ""
    class_name: Annotated[
        str,
        typer.Option(
            "--class",
            metavar="NAME",
            help="The class in the jar. It implements Spark's UDF1 (0 to 22, for Java), or Scala's Function1.",
        ),
    ] = ""

    def load(self) -> Any:
        """Executes the Python file, or reads the jar. Raises InvalidRequestError."""
        if self.code and (self.jar or self.class_name):
            raise InvalidRequestError("--code is for a Python function, --jar and --class for one of Scala or Java")
        if self.code:
            from query_evolution.modify.code import load

            return load(self.code)
        if not self.jar or not self.class_name:
            raise InvalidRequestError("the new function is missing: give --code, or --jar and --class")
        return jar_function(self.jar, self.class_name)


app = typer.Typer(
    no_args_is_help=True,
    help="Change the code and the stateless operators of a running query.\n\nThe query is given by its checkpoint. Its "
    "driver checks the change, and the next batch brings it in force. The query is not restarted, and its state stays.",
)
CheckpointArgument = Annotated[
    str, typer.Argument(metavar="CHECKPOINT", help="The checkpointLocation of the query, seen as a folder here.")
]
PointArgument = Annotated[
    str, typer.Argument(metavar="POINT", help='The name that the query gives the place by .observe("POINT", ...).')
]


def function(
    checkpoint: CheckpointArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the function in the query.")],
    code: CodeOptions,
    trial: CanaryOptions,
    options: WaitOptions,
    sample: Annotated[
        int,
        typer.Option(
            help="With --dry-run: call the present UDF and the new one with this many rows of the newest batch, and "
            "show differences and times. 0: call neither."
        ),
    ] = SAMPLE_ROWS,
) -> None:
    """Replace a UDF (Python, Scala, Java), the function of applyInPandasWithState, or that of transformWithState.

    The name of the latter is transformWithStateUDF: Spark makes it of a processor. A Python file is executed here, a
    jar is copied to the checkpoint. The new function must have the same kind and return type as the present one.
    """
    canary = trial.chosen()

    def change(query: Modifications) -> View:
        return query.replace_function(name, code.load(), canary=canary, dry_run=options.dry_run, sample=sample)

    raise typer.Exit(carry_out(checkpoint, change, options))


def filter_(
    checkpoint: CheckpointArgument,
    point: PointArgument,
    where: Annotated[str, typer.Option(metavar="CONDITION", help="Rows that pass, as a condition in SQL.")],
    trial: CanaryOptions,
    options: WaitOptions,
    called: FunctionOption = None,
) -> None:
    """Insert a filter at a point of the query, or replace the one that was inserted there."""
    canary, functions = trial.chosen(), load_functions(called)

    def change(query: Modifications) -> View:
        return query.set_filter(point, where, functions=functions, canary=canary, dry_run=options.dry_run)

    raise typer.Exit(carry_out(checkpoint, change, options))


def columns(
    checkpoint: CheckpointArgument,
    point: PointArgument,
    value: Annotated[
        list[str],
        typer.Option("--set", metavar="COLUMN=EXPRESSION", help="New value of a column, in SQL. Repeat for more."),
    ],
    trial: CanaryOptions,
    options: WaitOptions,
    called: FunctionOption = None,
) -> None:
    """Give columns other values at a point of the query. The columns keep their types.

    The expressions may call Python functions that the query does not have: give each with --function. The file is
    executed here.
    """
    chosen, canary, functions = parse_columns(value), trial.chosen(), load_functions(called)

    def change(query: Modifications) -> View:
        return query.set_columns(point, chosen, functions=functions, canary=canary, dry_run=options.dry_run)

    raise typer.Exit(carry_out(checkpoint, change, options))


def join(
    checkpoint: CheckpointArgument,
    point: PointArgument,
    table: TableOptions,
    trial: CanaryOptions,
    options: WaitOptions,
    value: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="COLUMN=EXPRESSION",
            help="New value of a column, in SQL; table.NAME is a column of the table. Repeat for more.",
        ),
    ] = None,
    called: FunctionOption = None,
) -> None:
    """Join the rows of a point with a static table of 64 MiB at most. The columns of the point keep their types.

    The driver reads the table once, and keeps a copy in the checkpoint. left_semi and left_anti filter rows; inner and
    left give columns other values with --set.
    """
    its, on = table.chosen()
    chosen, canary, functions = parse_columns(value or []), trial.chosen(), load_functions(called)

    def change(query: Modifications) -> View:
        return query.set_join(
            point, its, on, how=table.how, columns=chosen, functions=functions, canary=canary, dry_run=options.dry_run
        )

    raise typer.Exit(carry_out(checkpoint, change, options))


def remove(
    checkpoint: CheckpointArgument,
    kind: Annotated[Kind, typer.Argument(metavar="KIND", help="function, filter, join or columns.")],
    target: Annotated[str, typer.Argument(metavar="NAME", help="The name of the function, or of the point.")],
    options: WaitOptions,
) -> None:
    """Take a change out again. The query goes on as its application has it."""
    raise typer.Exit(carry_out(checkpoint, lambda query: query.remove(kind, target, dry_run=options.dry_run), options))


def withdraw(
    checkpoint: CheckpointArgument,
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="Its number in `rhino modifications`.")],
    as_json: JsonOption = False,
) -> None:
    """Take back a change that no driver has checked yet, or one that makes a query fail, which is stopped then.

    Everything that came in force with the same batch is taken back with it. For a running query: `rhino modify remove`.
    """
    show(Modifications(checkpoint).withdraw(number), as_json=as_json)


def modifications(checkpoint: CheckpointArgument, as_json: JsonOption = False) -> None:
    """List the modifications of a query: what, by whom and when, for which batches, and what became of them."""
    views = Modifications(checkpoint).list()
    if as_json:
        say_json([plain(view) for view in views])
    else:
        show_list(views)


def register(main: typer.Typer, panel: str) -> None:
    """Adds the commands to `main`."""
    commands = (("function", function), ("filter", filter_), ("join", join), ("columns", columns), ("remove", remove))
    for name, command in commands:
        app.command(name)(expanded(command))
    app.command("withdraw")(withdraw)
    main.add_typer(app, name="modify", rich_help_panel=panel)
    main.command("modifications", rich_help_panel=panel)(modifications)
    main.command("restarts", rich_help_panel=panel)(restarts)
