"""The options of `rhino modify function` for the new version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from query_evolution.modify.jars import jar_function
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
