"""The description of a network, as in its TOML file (`graph.py` works out the layers).

A description lists operations in the order of the data flow. Each takes the result of the one
before it, or the results that it names: `from = "pool1"`, `from = ["a", "b"]`; `from = "images"`
are the network's inputs. A convolution or a fully connected operation opens a *layer*; the
operations between it and the next one (ReLU, pooling, normalisation, dropout, addition,
concatenation) are done by the layer's special function unit (SFU; FPDeep, section 5.3), on complete
outputs. So a `Layer`, which the mapping cuts, is weights, bias and an SFU.

`to_toml` writes it, one operation a line; `Description` reads it back equal.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

import pydantic

from ..common import (
    InputError,
    Model,
    Name,
    Names,
    Positive,
    as_tuple,
    model_of,
    native,
    toml_value,
    validate,
)
from .layer import Start
from .operation import Operation, operation_types
from .pytorch.names import TorchNames
from .pytorch.names import to_toml as torch_as_toml
from .shape import Shape, shown

_SEVERAL = Annotated[Names, pydantic.Field(min_length=2)]


@dataclasses.dataclass(frozen=True)
class Node:
    """An operation, its name, and the names of the operations whose results it takes, if given."""

    operation: Operation
    name: str | None = None
    source: tuple[str, ...] | None = None


@functools.cache
def node_model(kind: type[Operation]) -> type[Model]:
    """Return the model of an operation's table: its own keys, `name` and `from`."""
    source: Any = (_SEVERAL, pydantic.Field(alias="from"))
    if not kind.joins:
        source = (Names | None, pydantic.Field(None, alias="from"))
    return model_of(kind, type=(Literal[kind.type], ...), name=(Name | None, None), source=source)


def node(kind: type[Operation], keys: dict[str, Any], where: str) -> Node:
    """Return the node of an operation from the keys of its table.

    Raises:
        InputError: a key is unknown or missing, has the wrong type or range, or goes with none of
            the others; the message begins with `where`.
    """
    said = validate(node_model(kind), {**keys, "type": kind.type}, where)
    try:
        return _node(kind, said)
    except ValueError as error:  # a value that goes with none of the others
        raise InputError(f"{where}: {error}") from None


def _node(kind: type[Operation], said: Any) -> Node:
    keys = {field.name: getattr(said, field.name) for field in dataclasses.fields(kind)}  # type: ignore[arg-type]  # all are dataclasses
    return Node(kind(**keys), said.name, said.source)


class _AnyNode:
    """A marker of tables that are validated as the operation that their `type` names."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        kinds: list[Any] = [
            Annotated[node_model(kind), pydantic.AfterValidator(functools.partial(_node, kind))]
            for kind in operation_types().values()
        ]
        any_kind: Any = functools.reduce(operator.or_, kinds)
        return handler.generate_schema(Annotated[any_kind, pydantic.Field(discriminator="type")])


class Description(Model):
    """A network, as in its TOML file.

    With `any_images`, its input is that of the images that it trains on. Arrays of sequences have
    the steps of a sample before its channels, but for those that are `channels_first`.
    """

    former: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("linear", "Linear", "dense", "Dense"), "fc"),
        **dict.fromkeys(("bn", "BatchNorm2d"), "batch-norm"),
        **dict.fromkeys(("p", "probability"), "rate"),
        **dict.fromkeys(("out_channels", "filters"), "channels"),
        **dict.fromkeys(("hidden", "hidden_size"), "units"),
        **dict.fromkeys(("out_features", "outputs"), "features"),
        **dict.fromkeys(("kernel_size", "size"), "kernel"),
        **dict.fromkeys(("n_heads", "num_heads"), "heads"),
        **dict.fromkeys(("inputs", "after", "source"), "from"),
    }
    elsewhere: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("flatten", "Flatten", "reshape"), "fc takes maps as they are; leave it out"
        ),
        "activation": 'an activation is a table of its own, such as { type = "relu" } behind it',
        **dict.fromkeys(("input_shape", "in_channels", "in_features"), "sizes follow from `input`"),
        "symbols": "a network has `symbols`, beside its `input`",
        **dict.fromkeys(("layer", "model"), "its tables stand in `layers`"),
        **dict.fromkeys(
            ("network", "cluster", "devices", "data", "epochs", "batch", "schedule"),
            "it is a key of a run; such a file is read by `emuchain plan` and others, and in Python"
            " its keys are arguments",
        ),
        **dict.fromkeys(("boards", "links"), "it is a key of a cluster; give that as `cluster`"),
    }

    name: Name
    any_images: bool = False
    symbols: Positive | None = None
    input: Annotated[tuple[Positive, Positive, Positive], pydantic.BeforeValidator(as_tuple)]
    channels_first: Annotated[
        tuple[Literal["inputs", "results"], ...], pydantic.BeforeValidator(as_tuple)
    ] = ()
    start: Start = "he"
    layers: Annotated[tuple[Annotated[Node, _AnyNode()], ...], pydantic.BeforeValidator(as_tuple)]
    torch: TorchNames | None = None


def with_symbols(
    keys: Mapping[str, Any], symbols: Callable[[], int] | None = None
) -> dict[str, Any]:
    """Return a description's keys with a number for the word "symbols": a text's, or that of its
    key `symbols`.
    """
    if keys.get("symbols") is None:
        return dict(keys)
    count = native(keys["symbols"] if symbols is None else symbols())
    if not isinstance(count, int):
        return dict(keys)

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: filled(entry) if key not in ("name", "from", "type") else entry
                for key, entry in value.items()
            }
        return (
            [filled(entry) for entry in value]
            if isinstance(value, list)
            else count
            if value == "symbols"
            else value
        )

    return {
        **keys,
        "symbols": None,
        **{key: filled(keys[key]) for key in ("input", "layers") if key in keys},
    }


def with_images(keys: Mapping[str, Any], images: Callable[[], Shape] | None) -> dict[str, Any]:
    """Return a description's keys with the shape of a data set's images as input, if it takes
    any.
    """
    if images is None or keys.get("any_images") is not True:
        return dict(keys)
    return {**keys, "any_images": False, "input": list(images())}


def with_steps(description: Description, steps: int) -> Description:
    """Return a description of the same network on sequences of `steps` time steps.

    Raises:
        InputError: its input is not a sequence.
    """
    channels, rows, columns = description.input
    if columns != 1 or rows == 1:
        raise InputError(
            f"`time_steps` = {steps}: network {description.name} takes maps of"
            f" {shown(description.input)}; only a sequence, with several rows of one column each,"
            " may have another number of steps"
        )
    return description.model_copy(update={"input": (channels, steps, 1), "torch": None})


def to_toml(description: Description) -> str:
    """Return the TOML file of a description; keys that have their defaults are left out."""
    ends = [*description.channels_first]
    lines = [
        f"name = {_value(description.name)}",
        *(["any_images = true"] if description.any_images else []),
        f"input = {_value(description.input)}  # channels, rows, columns",
        *([f"channels_first = {_value(ends)}"] if ends else []),
        f"start = {_value(description.start)}",
        "layers = [",
        *(f"  {_table(node)}," for node in description.layers),
        "]",
    ]
    names = "" if description.torch is None else torch_as_toml(description.torch)
    return "\n".join(lines) + "\n" + names


def _table(node: Node) -> str:
    keys: dict[str, Any] = {"type": node.operation.type}
    for field in dataclasses.fields(node.operation):  # type: ignore[arg-type]  # all are dataclasses
        value = getattr(node.operation, field.name)
        if value != field.default:
            keys[field.name] = value
    if node.name is not None:
        keys["name"] = node.name
    if node.source is not None:
        keys["from"] = node.source
    return f"{{ {', '.join(f'{key} = {_value(value)}' for key, value in keys.items())} }}"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        if (len(value) == 1 and not isinstance(value[0], float)) or (
            len(value) == 2 and value[0] == value[1] and isinstance(value[0], int)
        ):
            return _value(value[0])
        return f"[{', '.join(map(_value, value))}]"
    return toml_value(value)
