"""`--set KEY=VALUE`: any key of a run or its cluster, as its own flag or its file would set it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click
from click.core import ParameterSource

from ..common import InputError, did_you_mean

SET = "--set"
CHANGES = "changes"
"""The name by which a function gets the changed keys of a cluster."""


def set_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flag `--set` to a command, whose function gets the changed keys of its cluster as `changes`."""
    told = "Set any key of the cluster, such as link.bandwidth_gbps=250, or one that has a flag here; may be repeated."
    return click.option(SET, CHANGES, type=click.UNPROCESSED, multiple=True, metavar="KEY=VALUE", help=told)(command)


def set_parameters(ctx: click.Context, parameters: list[click.Parameter]) -> None:
    """Give the parameters of a command the values that `--set` has for them; leave keys of the cluster.

    Raises:
        InputError: a key is unknown, is none of this command, or its flag has another value.
    """
    from ..config import is_of_run, parse_changes

    by_key = {(parameter.name or "").replace("precision_", "precision."): parameter for parameter in parameters}
    changes = parse_changes(ctx.params[CHANGES])
    for key in [key for key in changes if is_of_run(key)]:
        parameter, value = by_key.get(key), changes.pop(key)
        if parameter is None or parameter.name is None:
            keys = [key for key in by_key if is_of_run(key)]
            raise InputError(
                f"{SET} {key}: `{ctx.command_path}` has no such key of a run; {did_you_mean(key, keys)}it has"
                f" {', '.join(keys)}, and those of the cluster"
            )
        given = ctx.params[parameter.name]
        ctx.params[parameter.name] = set_value(ctx, parameter, value)
        is_given = ctx.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
        if is_given and given != ctx.params[parameter.name]:
            raise InputError(f"`{key}` = {given!r}: {SET} has {ctx.params[parameter.name]!r}; give one of them")
    ctx.params[CHANGES] = changes


def set_value(ctx: click.Context, parameter: click.Parameter, value: object) -> Any:
    """Return a value of `--set` as the parameter's own flag has it."""
    from ..common import toml_value

    return parameter.process_value(ctx, value if isinstance(value, str) else toml_value(value))


def set_words(changes: Mapping[str, object]) -> list[str]:
    """Return the words of a command line that set these keys."""
    from ..common import toml_value

    return [word for key, value in changes.items() for word in (SET, f"{key}={toml_value(value)}")]
