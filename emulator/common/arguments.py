"""Arguments of public functions by their type hints: what is clear is converted, anything else is
one line.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar

import numpy as np

from .messages import InputError

Function = TypeVar("Function", bound=Callable[..., Any])


def typed(function: Function) -> Function:
    """Let a function take only what its type hints name; see `_converted` for what becomes that.

    None stands for a default. Whoever calls it wrongly gets an InputError. What is `Any` or
    `Annotated` is left to it.
    """
    signature = inspect.signature(function)
    hints = functools.cache(lambda: _hints(function))

    @functools.wraps(function)
    def called(*args: Any, **keys: Any) -> Any:
        try:
            bound = signature.bind(*args, **keys)
        except TypeError as error:
            names = ", ".join(
                str(parameter).split(":")[0] for parameter in signature.parameters.values()
            )
            raise InputError(
                f"{function.__name__}: {error}; {_placed(error, args, signature)}its arguments are"
                f" {names}"
            ) from None
        for name, value in bound.arguments.items():
            parameter, hint = signature.parameters[name], hints()[name]
            if parameter.kind is parameter.VAR_KEYWORD:
                bound.arguments[name] = {key: native(part) for key, part in value.items()}
            elif parameter.kind is parameter.VAR_POSITIONAL:
                bound.arguments[name] = tuple(_converted(part, hint, name) for part in value)
            elif value is None and parameter.default is not parameter.empty:
                bound.arguments[name] = parameter.default
            else:
                try:
                    bound.arguments[name] = _converted(value, hint, name)
                except InputError as error:
                    raise InputError(f"{error}{_meant(value, name, signature)}") from None
        return function(*bound.args, **bound.kwargs)

    return typing.cast(Function, called)


def _placed(error: TypeError, args: tuple[Any, ...], signature: inspect.Signature) -> str:
    """Return what helps against arguments that are given by their places, for a message."""
    twice = re.search("multiple values for argument '(.+)'", str(error))
    if twice is not None and twice[1] in signature.parameters:
        place = [*signature.parameters].index(twice[1])
        return f"{described(args[place])} has its place; give that by its name, too; "
    if "too many positional" not in str(error):
        return ""
    if "data" in signature.parameters and sum(hasattr(value, "shape") for value in args) > 1:
        return "inputs and targets are one argument, (inputs, targets); "
    return "give further ones by their names; "


def _meant(value: Any, name: str, signature: inspect.Signature) -> str:
    """Return which argument a value is meant for, for the end of a message."""
    other = type(value).__name__.lower()
    if other in signature.parameters and other != name:
        return f"; {name} and {other} may have changed places: give it as `{other}`"
    keyed = any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values()
    )
    if keyed and type(value) is int and name in ("network", "cluster"):
        return f"; numbers are given by their names, such as devices={value}"
    return ""


def native(value: Any) -> Any:
    """Return NumPy's numbers and arrays as Python's, and paths as text, also those in lists, tuples
    and mappings.
    """
    if isinstance(value, np.floating):
        return float(str(value))  # 0.1, where single precision has 0.10000000149
    if isinstance(value, np.generic | np.ndarray):
        return native(value.tolist()) if isinstance(value, np.ndarray) else value.item()
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if type(value) in (list, tuple):
        return type(value)(map(native, value))
    return {key: native(part) for key, part in value.items()} if type(value) is dict else value


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of a function's arguments; those of results may be known to type checkers
    alone.
    """
    said = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
    arguments = types.SimpleNamespace(__annotations__=said)
    return typing.get_type_hints(arguments, function.__globals__, include_extras=True)


def _converted(value: Any, hint: Any, name: str) -> Any:
    """Return a value as a type hint has it: numbers and arrays of NumPy as Python's, and paths as
    text.

    Raises:
        InputError: it is nothing of that type.
    """
    choices = _choices(hint)
    if Any in choices or typing.get_origin(hint) is Annotated:
        return value
    made = (
        value
        if isinstance(value, os.PathLike) and os.PathLike not in map(_kind, choices)
        else native(value)
    )
    if isinstance(made, list) and tuple in map(_kind, choices):
        made = tuple(made)
    if not _fits_any(made, hint):
        said = list(dict.fromkeys(map(_spelt, choices)))
        should = said[0] if len(said) == 1 else f"{', '.join(said[:-1])} or {said[-1]}"
        raise InputError(f"`{name}`: is {described(value)}; should be {should}")
    return made


def _choices(hint: Any) -> tuple[Any, ...]:
    """Return the types that a hint allows."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(choice for own in typing.get_args(hint) for choice in _choices(own))
    return (hint,)


def _kind(hint: Any) -> Any:
    return typing.get_origin(hint) or hint


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value is of a type."""
    kind = _kind(hint)
    if kind is Literal:
        return isinstance(value, str) and value in typing.get_args(hint)
    if kind is tuple:
        parts = typing.get_args(hint)
        is_alike = isinstance(value, tuple) and len(value) == len(parts)
        return is_alike and all(
            _fits_any(part, inner) for part, inner in zip(value, parts, strict=True)
        )
    if kind in (int, float):
        return type(value) is int or (kind is float and type(value) is float)
    if kind in (bool, str):
        return type(value) is kind or (kind is str and isinstance(value, str))
    if kind is types.NoneType:
        return value is None
    if issubclass(kind, Mapping):
        return isinstance(value, kind) and all(isinstance(key, str) for key in value)
    if not issubclass(kind, Iterable):
        return isinstance(value, kind)
    if isinstance(value, list | tuple):
        [inner] = typing.get_args(hint)
        return all(_fits_any(part, inner) for part in value)
    return isinstance(value, kind) and not isinstance(value, str | bytes | Mapping)


def _fits_any(value: Any, hint: Any) -> bool:
    return any(_fits(value, own) for own in _choices(hint))


_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "text",
    types.NoneType: "None",
    Mapping: "a mapping of names",
    os.PathLike: "a path",
    Callable: "a function",
}


def _spelt(hint: Any) -> str:
    """Return a type as text for messages."""
    kind = _kind(hint)
    if kind is Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    if kind is tuple:
        return f"a tuple of {len(typing.get_args(hint))}"
    if kind in _WORDS:
        return _WORDS[kind]
    return (
        "a list"
        if issubclass(kind, Iterable)
        else f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"
    )


def described(value: Any) -> str:
    """Return what a value is, for messages."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        text = repr(value)
        return text if len(text) < 50 else f"{text[:40]}…"
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}, as `numpy.savez` writes it into a file"
    if isinstance(value, types.ModuleType):
        return f"the module {value.__name__}"
    if hasattr(value, "state_dict") and hasattr(value, "forward"):
        return "a module of PyTorch, of which `emuchain.from_torch` makes a network"
    return f"of type {type(value).__name__}"
