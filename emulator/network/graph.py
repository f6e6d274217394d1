"""The operator graph: from a description's operations to layers in one row, with all shapes worked out.

FPDeep maps any network "that can be described as a one-way graph with nodes representing pipelined groups of
consecutive layers" (section 5.1): here each layer is such a node. What a shortcut or a branch carries past layers that
do not use it goes with them along the chain (`Layer.bypass`), and is gathered by the SFU that adds or concatenates.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from ..common.errors import InputError
from . import layers as resolved
from .description import Add, Concat, Conv, Description, Fc, GlobalAveragePool, Operation, Pool, SfuNode, Softmax
from .layers import Layer, Network, Pair, SfuStep, Shape, Tensor

IMAGES = "images"
"""The name by which operations take the network's inputs."""


def resolve(description: Description, source: str, wheres: Sequence[str] = ()) -> Network:
    """Work out all shapes of a description, and what passes by which layer.

    Messages begin with `source`; of operations that come from elsewhere, `wheres` says where each stands there.

    Raises:
        InputError: an operation stands where it cannot, or does not fit its input; a cycle, a hole.
    """
    places = wheres or [f"{source}: layers[{n}] ({of.type})" for n, of in enumerate(description.layers)]
    graph = _Graph(Tensor(0, description.input, IMAGES), source)
    for place, (where, operation) in enumerate(zip(places, description.layers, strict=True)):
        graph.add(where, operation, is_last=place + 1 == len(description.layers))
    return Network(description.name, description.input, description.start, graph.layers(description))


@dataclasses.dataclass
class _Opened:
    """A layer in the making: its operation, tensors, and SFU so far."""

    name: str
    operation: Conv | Fc
    reads: Tensor
    makes: Tensor
    sfu: list[SfuStep] = dataclasses.field(default_factory=list)


class _Graph:
    """The layers opened so far, and the tensors that operations may take."""

    def __init__(self, images: Tensor, source: str) -> None:
        self._source = source
        self._named = {IMAGES: images}
        self._places: dict[int, str] = {}
        self._latest = images
        self._opened: list[_Opened] = []
        self._counts = {"conv": 0, "fc": 0}
        self._result: Tensor | None = None

    def add(self, where: str, operation: Operation, *, is_last: bool) -> None:
        """The next operation of the description, which stands `where`."""
        taken = [self._named_tensor(where, name) for name in operation.source or ()] or [self._latest]
        if len(taken) > 1 and not isinstance(operation, (Add, Concat)):
            raise InputError(f"{where}: `from` names {len(taken)} operations; only add and concat take more than one")
        if isinstance(operation, Softmax):
            if not is_last:
                raise InputError(f"{where}: softmax closes a network; nothing may follow it")
            self._result = taken[0]
            return
        if isinstance(operation, (Conv, Fc)):
            made = self._open(where, operation, taken[0])
        elif not self._opened:
            raise InputError(f"{where}: a network begins with conv or fc, for it is a layer's SFU that does the rest")
        else:
            name = operation.name or f"{self._opened[-1].name}/{operation.type}"
            made = self._next_tensor(_sfu_output(where, operation, [tensor.shape for tensor in taken]), name)
            step = SfuStep(_resolved(operation, taken[0].shape), tuple(taken), made)
            self._opened[-1].sfu.append(step)
            if operation.name is not None:
                self._name(where, operation.name, made)
        self._places[made.number] = where
        self._latest = made

    def layers(self, description: Description) -> tuple[Layer, ...]:
        """All layers, when the description is through."""
        if not description.layers or not isinstance(description.layers[-1], Softmax) or self._result is None:
            raise InputError(f'{self._source}: the last of `layers` must be {{type = "softmax"}}')
        if not self._opened:
            raise InputError(f"{self._source}: `layers` holds no conv and no fc, so there is nothing to train")
        if self._result.shape[1:] != (1, 1):
            raise InputError(
                f"{self._source}: softmax needs one value a class, found maps of"
                f" {self._result.shape[1]}x{self._result.shape[2]}; end with fc or global-average-pool"
            )
        last_uses = self._last_uses()
        for number, where in self._places.items():
            if number not in last_uses:
                raise InputError(f"{where}: nothing takes its result: a hole; name it in some `from`, or leave it out")
        return tuple(self._layer(index, last_uses) for index in range(len(self._opened)))

    def _last_uses(self) -> dict[int, tuple[int, bool]]:
        """For each tensor the last layer that uses it, and whether the SFU does, which comes after the convolution."""
        assert self._result is not None
        uses: dict[int, tuple[int, bool]] = {}
        for index, opened in enumerate(self._opened):
            uses[opened.reads.number] = index, False
            uses.update((tensor.number, (index, True)) for step in opened.sfu for tensor in step.reads)
        return {**uses, self._result.number: (len(self._opened), False)}

    def _layer(self, index: int, last_uses: dict[int, tuple[int, bool]]) -> Layer:
        opened, operation = self._opened[index], self._opened[index].operation
        before = [self._named[IMAGES], *(tensor for earlier in self._opened[:index] for tensor in _made_by(earlier))]
        bypass = [tensor for tensor in before if last_uses.get(tensor.number, (-1, False)) >= (index, True)]
        here = [*before, *_made_by(opened)]
        hands_on = [tensor for tensor in here if last_uses.get(tensor.number, (-1, False)) > (index, True)]
        window: tuple[Pair, Pair, Pair]
        if isinstance(operation, Fc):
            channels, window = operation.features, (opened.reads.shape[1:], (1, 1), (0, 0))
        else:
            channels, window = operation.channels, (operation.kernel, operation.stride, operation.pad)
        return Layer(
            index,
            opened.name,
            opened.reads,
            opened.makes,
            tuple(bypass),
            tuple(hands_on),
            channels,
            *window,
            operation.bias,
            isinstance(operation, Fc),
            tuple(opened.sfu),
        )

    def _open(self, where: str, operation: Conv | Fc, reads: Tensor) -> Tensor:
        self._counts[operation.type] += 1
        name = operation.name or f"{operation.type}{self._counts[operation.type]}"
        if isinstance(operation, Fc):
            shape = operation.features, 1, 1
        else:
            _check_window(where, reads.shape, operation.kernel, operation.pad)
            size = _windows(reads.shape, operation.kernel, operation.stride, operation.pad)
            shape = operation.channels, *size
        made = self._next_tensor(shape, name)
        self._name(where, name, made)
        self._opened.append(_Opened(name, operation, reads, made))
        return made

    def _next_tensor(self, shape: Shape, name: str) -> Tensor:
        return Tensor(len(self._places) + 1, shape, name)

    def _name(self, where: str, name: str, tensor: Tensor) -> None:
        if name in self._named or not re.fullmatch(r"[\w-]+", name):
            raise InputError(f"{where}: `name` = {name!r}: names differ, and hold letters, digits, _ and -")
        self._named[name] = tensor

    def _named_tensor(self, where: str, name: str) -> Tensor:
        if name not in self._named:
            known = ", ".join(list(self._named)[-4:])
            raise InputError(
                f"{where}: `from` = {name!r}: no operation before it has that name (the last are {known}); operations"
                " stand in the order in which data flow, so what comes later would close a cycle"
            )
        return self._named[name]


def _made_by(opened: _Opened) -> list[Tensor]:
    return [opened.makes, *(step.makes for step in opened.sfu)]


def _resolved(operation: SfuNode, shape: Shape) -> resolved.SfuOperation:
    if isinstance(operation, GlobalAveragePool):
        return resolved.Pool("average-pool", shape[1:], shape[1:])
    if isinstance(operation, Pool):
        return resolved.Pool(operation.type, operation.kernel, operation.stride or operation.kernel, operation.pad)
    kind = getattr(resolved, type(operation).__name__)
    return kind(**operation.model_dump(exclude={"name", "source"}))


def _check_window(where: str, shape: Shape, kernel: Pair, pad: Pair) -> None:
    for size, window, border in zip(shape[1:], kernel, pad, strict=True):
        if border >= window:
            raise InputError(f"{where}: `pad` = {border} must be less than the kernel, {window}")
        if window > size + 2 * border:
            raise InputError(
                f"{where}: `kernel` = {window} is larger than its input of {size} with padding {border} on each side"
            )


def _windows(shape: Shape, kernel: Pair, stride: Pair, pad: Pair) -> Pair:
    rows, columns = (
        (size + 2 * border - window) // step + 1
        for size, window, step, border in zip(shape[1:], kernel, stride, pad, strict=True)
    )
    return rows, columns


def _sfu_output(where: str, operation: SfuNode, shapes: Sequence[Shape]) -> Shape:
    first = shapes[0]
    if isinstance(operation, Pool):
        _check_window(where, first, operation.kernel, operation.pad)
        return first[0], *_windows(first, operation.kernel, operation.stride or operation.kernel, operation.pad)
    if isinstance(operation, GlobalAveragePool):
        return first[0], 1, 1
    shown = " and ".join("x".join(map(str, shape)) for shape in shapes)
    if isinstance(operation, Add) and any(shape != first for shape in shapes):
        raise InputError(f"{where}: adds maps of one shape, but these are {shown}")
    if isinstance(operation, Concat):
        if any(shape[1:] != first[1:] for shape in shapes):
            raise InputError(f"{where}: joins channels of maps of one size, but these are {shown}")
        return sum(shape[0] for shape in shapes), *first[1:]
    return first
