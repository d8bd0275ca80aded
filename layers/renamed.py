"""Arguments that had another name, or another place, in version 0.1.

They still work for one release, with a DeprecationWarning that says what to write. The two tables
are the whole list; `renamed` decorates the calls that had them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from functools import wraps
from types import MappingProxyType
from typing import Any, TypeVar

from minigrad.errors import DTypeError

__all__ = ["former", "old_names", "renamed"]

Function = TypeVar("Function", bound=Callable[..., Any])

NEW_NAMES = MappingProxyType(
    {
        "causal": "is_causal",  # as in mg.scaled_dot_product_attention
        "in_channels": "d_in",  # as in Linear, LSTM, GRU and RNN
        "out_channels": "d_out",
    }
)
"""The old name of an argument, and the new one."""

OLD_TYPES: MappingProxyType[str, tuple[Any, ...]] = MappingProxyType(
    {
        "init": (str, Callable),  # stood before rng; in Linear behind dtype
        "use_bias": (bool,),  # stood before dtype in LayerNorm
        "plus_one": (bool,),  # stood before dtype in RMSNorm
        "momentum": (float, int),  # stood before dtype in BatchNorm
    }
)
"""An argument that now goes by keyword, and the types by which it is known in its old place."""


def renamed(*old: str, **places: int) -> Callable[[Function], Function]:
    """Decorate a function, or a layer's `__init__`, so that it takes its old arguments too.

    Args:    old: old names of its arguments, keys of NEW_NAMES.
             places: names of OLD_TYPES, each with the place that it had, counted without self.
    Raises:  DTypeError, a TypeError, for an argument given under both names or twice.

    >>> @renamed("causal")
    ... def seen(n, is_causal=False):
    ...     return is_causal
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     seen(3, causal=True), str(caught[0].message)
    (True, 'seen: causal= is now is_causal=; the old name works for one more release')
    """

    def decorate(function: Function) -> Function:
        is_layer = function.__name__ == "__init__"
        call = function.__qualname__.removesuffix(".__init__")

        @wraps(function)
        def taking_old_names(*args: Any, **kwargs: Any) -> Any:
            shown = type(args[0]).__name__ if is_layer else call
            for name in old:
                if name in kwargs:
                    new = NEW_NAMES[name]
                    _put(shown, kwargs, new, kwargs.pop(name))
                    _warn(f"{shown}: {name}= is now {new}=; the old name works", is_layer)
            for name, place in places.items():
                at = place + is_layer
                if len(args) > at and isinstance(args[at], OLD_TYPES[name]):
                    _put(shown, kwargs, name, args[at])
                    args = (*args[:at], *args[at + 1 :])
                    text = f"{shown}: {name} goes by keyword now, {name}=...; its old place works"
                    _warn(text, is_layer)
            return function(*args, **kwargs)

        taking_old_names.__dict__["old_names"] = old
        return taking_old_names  # type: ignore[return-value]

    return decorate


def former(name: str, function: Function) -> Function:
    """A function under the name that it had before; calling it warns."""

    @wraps(function)
    def under_old_name(*args: Any, **kwargs: Any) -> Any:
        _warn(f"{name} is now {function.__name__}; the old name works")
        return function(*args, **kwargs)

    return under_old_name  # type: ignore[return-value]


def old_names(function: Any) -> Collection[str]:
    """The old names that a function still takes."""
    return getattr(function, "old_names", ())


def _put(call: str, kwargs: dict[str, Any], name: str, value: Any) -> None:
    if name in kwargs:
        raise DTypeError(f"{call}: {name} is given twice, once in the old way; leave that out")
    kwargs[name] = value


def _warn(text: str, is_layer: bool = False) -> None:
    """Warn at the line of the call that is decorated; a layer's goes through `explained` first."""
    warnings.warn(f"{text} for one more release", DeprecationWarning, stacklevel=3 + is_layer)
