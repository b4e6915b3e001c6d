"""The declaration of one setting of a daemon: its name, unit, meaning and allowed values.

A settings class (rhino_core/settings.py) annotates each field with a `Setting`. Flags, environment variables, keys of
config files, checks, help texts and the reference page are made from these declarations.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from rhino_core import ids
from rhino_core.errors import InvalidSettingError

KIB = 1024
MIB = 1024 * KIB
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True, slots=True)
class Rule:
    """The allowed values of a setting. `holds` takes the value and all settings of the daemon."""

    allowed: str
    holds: Callable[[Any, Any], bool] = lambda value, settings: True
    metavar: str = ""


ANY = Rule("a text", metavar="TEXT")
FLAG = Rule("true or false")
FOLDER = Rule("a folder", metavar="FOLDER")
SOCKET = Rule("a path", metavar="PATH")
ADDRESS = Rule('"host:port"', lambda value, settings: ids.is_address(value), "HOST:PORT")
MANAGER = Rule(
    '"host:port", or several with commas between them',
    lambda value, settings: ids.are_addresses(value),
    "HOST:PORT,...",
)
ADVERTISED = Rule(
    "a host that others can reach, or such a host with its port",
    lambda value, settings: not value or _can_be_reached(value),
    "HOST[:PORT]",
)
WORKER_ID = Rule(ids.SAFE_NAMES, lambda value, settings: ids.is_safe(value), "NAME")
HOST = Rule("the host name of this node in Spark", lambda value, settings: ids.is_host(value), "HOST")
LABEL = Rule(f"empty, or {ids.SAFE_NAMES}", lambda value, settings: not value or ids.is_safe(value), "NAME")
PORT = Rule("a port: 0 to 65535", lambda value, settings: value in range(65536), "PORT")
LOG_LEVEL = Rule(", ".join(LOG_LEVELS), lambda value, settings: value.lower() in LOG_LEVELS, "LEVEL")
NOT_NEGATIVE = Rule("0 or more", lambda value, settings: value >= 0)
POSITIVE = Rule("above 0", lambda value, settings: value > 0)


@dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of a setting, in the annotation of its field.

    `name`: for users; by default the field's name. It differs if users give another unit than the code uses.
    `unit`: one unit of the user's value in the field's unit, for example 1 MiB in bytes.
    `unset`: the default in words, for a field whose default depends on the machine or on other settings.
    `also`: another environment variable with a value for the setting.
    `one_start`: the setting is for a single start, so a config file must not have it.
    """

    help: str
    rule: Rule
    name: str = ""
    unit: int = 1
    unset: str = ""
    also: str = ""
    one_start: bool = False


@dataclass(frozen=True, slots=True)
class Declared:
    """A setting with its field's type and default. `default` is None if there is none."""

    field: str
    daemon: str
    kind: type
    default: Any
    about: Setting

    @property
    def key(self) -> str:
        """The name in a config file. The names of flag and variable contain it."""
        return self.about.name or self.field

    @property
    def flag(self) -> str:
        return f"--{self.key.replace('_', '-')}"

    @property
    def variable(self) -> str:
        return f"RHINO_{self.daemon.upper()}_{self.key.upper()}"

    @property
    def metavar(self) -> str:
        return self.about.rule.metavar or ("INTEGER" if self.kind is int else "NUMBER")

    @property
    def default_text(self) -> str:
        """The default as users would write it, or in words."""
        if self.default is None or self.about.unset:
            return self.about.unset
        return self.shown(self.default) if self.default != "" else "none"

    def parse(self, text: str) -> Any:
        """Returns the field's value for a text. Raises ValueError with the required form of the text."""
        if self.kind is bool:
            if text.lower() not in _TRUE + _FALSE:
                raise ValueError("true or false")
            return text.lower() in _TRUE
        if self.kind is Path:
            if not text:
                raise ValueError(self.about.rule.allowed)
            return Path(text)
        if self.kind is str:
            return text
        try:
            return self.kind(text) * self.about.unit
        except ValueError:
            raise ValueError("an integer" if self.kind is int else "a number") from None

    def convert(self, value: object) -> Any:
        """The field's value for a value of a TOML file. Raises ValueError with the required form of the value."""
        fits = isinstance(value, str) if self.kind in (str, Path) else type(value) in (self.kind, int)
        if not fits or isinstance(value, bool) is not (self.kind is bool):
            names = {bool: "true or false", int: "an integer", float: "a number"}
            raise ValueError(names.get(self.kind, "a string in quotation marks"))
        if self.kind in (int, float):
            assert isinstance(value, int | float)
            return self.kind(value) * self.about.unit
        return self.parse(value) if isinstance(value, str) else value

    def shown(self, value: Any) -> str:
        """The text of the value, as `parse` reads it."""
        if self.kind is bool:
            return str(value).lower()
        if self.kind in (int, float):
            return f"{value / self.about.unit:.15g}"
        return str(value)


def _can_be_reached(address: str) -> bool:
    complete = ids.with_port(address, 1)
    host, _, port = complete.rpartition(":")
    return ids.is_address(complete) and host not in ids.ALL_INTERFACES and int(port) > 0


class BadSettingError(InvalidSettingError):
    """The value of a field breaks its rule. With `declared` and `value`, callers can name the source of the value."""

    def __init__(self, declared: Declared, value: object, allowed: str) -> None:
        super().__init__(f"setting {declared.field} = {value!r}: must be {allowed}")
        self.declared = declared
        self.value = value
        self.allowed = allowed


def declared(kind: Any) -> tuple[Declared, ...]:
    """The settings of a settings class, in the order of its fields."""
    return _declared(kind)


@functools.cache
def _declared(kind: Any) -> tuple[Declared, ...]:
    hints = get_type_hints(kind, include_extras=True)
    found = []
    for field in dataclasses.fields(kind):
        (about,) = hints[field.name].__metadata__
        default = None if field.default is dataclasses.MISSING else field.default
        found.append(Declared(field.name, kind.DAEMON, hints[field.name].__origin__, default, about))
    return tuple(found)


def check(settings: Any) -> None:
    """Raises BadSettingError for the first field that breaks its rule."""
    for one in declared(type(settings)):
        value = getattr(settings, one.field)
        if isinstance(value, float) and not math.isfinite(value):
            raise BadSettingError(one, value, "a finite number")
        if not one.about.rule.holds(value, settings):
            raise BadSettingError(one, value, one.about.rule.allowed)


def require(condition: bool, name: str, value: object, allowed: str) -> None:
    """Raises InvalidSettingError with the name of the setting, its value and the allowed values."""
    if not condition:
        raise InvalidSettingError(f"setting {name} = {value!r}: must be {allowed}")


def check_manager(value: str) -> None:
    """Raises InvalidSettingError unless `value` is one or several "host:port" with ports from 0 to 65535."""
    require(ids.are_addresses(value), "manager", value, MANAGER.allowed)
