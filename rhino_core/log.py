"""Structured logs: one JSON object per line on stderr, or plain text on a terminal."""

from __future__ import annotations

import json
import logging
import sys
import time

from rhino_core.setting import LOG_LEVELS, require
from rhino_core.text import legible

_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class JsonFormatter(logging.Formatter):
    """Fields: time (UTC, ISO 8601), level, logger, message, exception, and every `extra` of the call.

    The names of extras are constants in the source, never data. `logging` raises KeyError for a name in use by all
    records, such as "name" or "process". An extra with the name of a field above gets a trailing underscore.
    """

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, object] = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        for name, value in _extra(record).items():
            fields[f"{name}_" if name in fields else name] = value
        return json.dumps(fields, default=str)


class TextFormatter(logging.Formatter):
    """The same fields as readable text on one line."""

    def format(self, record: logging.LogRecord) -> str:
        extra = " ".join(f"{k}={legible(str(v))}" for k, v in _extra(record).items())
        stamp = time.strftime("%H:%M:%S", time.localtime(record.created))
        text = f"{record.name}: {legible(record.getMessage())} {extra}"
        line = f"{stamp}.{int(record.msecs):03d} {record.levelname:<7} {text}"
        return line.rstrip() + (f"\n{self.formatException(record.exc_info)}" if record.exc_info else "")


def configure_logging(level: str = "info", *, json_lines: bool | None = None) -> None:
    """Configures the root logger. Logs are JSON lines unless stderr is a terminal. Raises InvalidSettingError."""
    require(level.lower() in LOG_LEVELS, "log_level", level, ", ".join(LOG_LEVELS))
    as_json = not sys.stderr.isatty() if json_lines is None else json_lines
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
