"""Tables of named implementations: priors, backends, isosurface methods, exporters."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from errors import UserError

T = TypeVar("T")


def lookup(table: Mapping[str, T], name: str, key: str) -> T:
    """Return table[name]; otherwise a UserError that names the key and lists the choices."""
    if name not in table:
        raise UserError(f"{key}={name!r} is unknown; choose from {', '.join(table)}")
    return table[name]


def register(table: dict[str, T], name: str) -> Callable[[T], T]:
    """Decorator that enters a function or class into `table`; the same name twice is an error."""

    def enter(item: T) -> T:
        if name in table:
            raise ValueError(f"{name!r} is registered already, by {table[name]!r}")
        table[name] = item
        return item

    return enter
