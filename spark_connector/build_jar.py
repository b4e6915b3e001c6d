"""`python -m spark_connector.build_jar`: builds the jar for the installed PySpark, unless it is cached."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rhino_core.errors import RhinoError
from spark_connector.jar import ensure_jar


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output-dir", type=Path, help="default: beside this package, else the cache")
    try:
        print(ensure_jar(parser.parse_args().output_dir, say=True))
    except RhinoError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
