"""The operator graph: from a description's operations to layers in one row, with all shapes worked
out.

FPDeep maps any network "that can be described as a one-way graph with nodes representing pipelined
groups of consecutive layers" (section 5.1): here each layer is such a node. Tensors that a shortcut
or a branch carries past layers that do not use them travel along the chain (`Layer.bypass`) to the
SFU that adds or concatenates them.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence

from ..common import InputError, plural
from .description import Description, Node
from .layer import Layer, Network, SfuStep
from .operation import Closing, LayerOperation, Operation, SfuOperation
from .shape import Pair, Shape, Tensor, shown

IMAGES = "images"
"""The name of the network's inputs in `from`."""


def resolve(description: Description, source: str, wheres: Sequence[str] = ()) -> Network:
    """Work out all shapes of a description and what bypasses which layer; return the network.

    Messages begin with `source`; for an imported description, `wheres` gives each operation's place
    in the original.

    Raises:
        InputError: an operation is out of place or does not fit its input; a cycle; a result that
            is not used.
    """
    places = wheres or [
        f"{source}: layers[{n}] ({node.operation.type})"
        for n, node in enumerate(description.layers)
    ]
    graph = _Graph(Tensor(0, description.input, IMAGES), source)
    for place, (where, node) in enumerate(zip(places, description.layers, strict=True)):
        graph.add(where, node, is_last=place + 1 == len(description.layers))
    layers = graph.layers(description)
    return Network(
        description.name,
        description.input,
        description.start,
        layers,
        loss=graph.loss,
        channels_first=description.channels_first,
        corner=graph.corner,
    )


@dataclasses.dataclass
class _Opened:
    """A layer under construction: its operation, tensors, and SFU so far."""

    name: str
    operation: LayerOperation
    reads: Tensor
    makes: Tensor
    sfu: list[SfuStep] = dataclasses.field(default_factory=list)


class _Graph:
    """The layers opened so far, and the tensors that operations may take."""

    def __init__(self, images: Tensor, source: str) -> None:
        self._source, self._images = source, images
        self._named = {IMAGES: images}
        self._places: dict[int, str] = {}
        self._latest = images
        self._opened: list[_Opened] = []
        self._counts: Counter[str] = Counter()
        self._result: Tensor | None = None
        self._vocabulary_parallel = False
        self.loss = ""
        """The operation that closes the network."""
        self.corner: Pair = (0, 0)
        """Rows and columns of zeros before an image's first."""

    def add(self, where: str, node: Node, *, is_last: bool) -> None:
        """Add the next operation of the description; messages about it begin with `where`."""
        operation = node.operation
        taken = [self._named_tensor(where, name) for name in node.source or ()] or [self._latest]
        if len(taken) > 1 and not operation.joins:
            raise InputError(
                f"{where}: `from` names {len(taken)} operations; only add, concat and"
                " multiply take more than one"
            )
        if isinstance(operation, Closing):
            if not is_last:
                raise InputError(
                    f"{where}: {operation.type} closes a network; nothing may follow it"
                )
            self._result = taken[0]
            self._close(where, operation)
            return
        begun = self._named[IMAGES] is not self._images
        if (
            isinstance(operation, SfuOperation)
            and operation.may_begin
            and not self._opened
            and not begun
        ):
            self._begin(where, node, operation, taken[0])
            return
        if not self._opened and not isinstance(operation, LayerOperation):
            raise InputError(
                f"{where}: a network begins with a layer, such as conv, fc or lstm; other"
                " operations run in its SFU; a conv of kernel 1, with as many groups as channels,"
                " may stand before them"
            )
        shape = _output(where, operation, [tensor.shape for tensor in taken])
        if isinstance(operation, LayerOperation):
            if operation.tied is not None:
                self._check_tied(where, operation, taken[0].shape)
            made = self._open(where, operation, node.name, taken[0], shape)
        else:
            assert isinstance(operation, SfuOperation)
            made = self._next_tensor(
                shape, node.name or f"{self._opened[-1].name}/{operation.type}"
            )
            resolved = operation.resolved([tensor.shape for tensor in taken])
            self._opened[-1].sfu.append(SfuStep(resolved, tuple(taken), made))
            if node.name is not None:
                self._name(where, node.name, made)
        self._places[made.number] = where
        self._latest = made

    def _begin(self, where: str, node: Node, operation: SfuOperation, images: Tensor) -> None:
        """Let the source of images do an operation that stands before the first layer."""
        shape, self.corner = _output(where, operation, [images.shape]), operation.corner
        self._latest = self._named[IMAGES] = dataclasses.replace(images, shape=shape)
        if node.name is not None:
            self._name(where, node.name, self._latest)

    def _close(self, where: str, closing: Closing) -> None:
        """Note whether slices of the last layer compute their own parts of the loss."""
        self._vocabulary_parallel, self.loss = closing.vocabulary_parallel, closing.type
        if not closing.vocabulary_parallel or not self._opened:
            return
        last, result = self._opened[-1], self._result
        if result != last.makes or last.sfu or not last.operation.makes_logits:
            raise InputError(
                f"{where}: `vocabulary_parallel` = true: slices compute the loss of their own"
                " outputs, so softmax should directly follow a conv with `kernel` = 1 and without"
                " groups, or an fc"
            )

    def layers(self, description: Description) -> tuple[Layer, ...]:
        """Return all layers, once all operations are added."""
        if self._result is None:
            raise InputError(
                f'{self._source}: the last of `layers` must be {{type = "softmax"}}, or another'
                " loss: mse, bce"
            )
        if not self._opened:
            raise InputError(
                f"{self._source}: `layers` holds no layer, such as conv, fc or lstm, so there is"
                " nothing to train"
            )
        looks_back = any(opened.operation.looks_back for opened in self._opened)
        self._check_symbols()
        self._check_tables()
        last_uses = self._last_uses()
        for number, where in self._places.items():
            if number not in last_uses:
                raise InputError(
                    f"{where}: its result is not used; name it in a `from`, or leave it out"
                )
        layers, read_once, waiting = list[Layer](), self._read_once(), [self._named[IMAGES]]
        for index, opened in enumerate(self._opened):
            layers.append(self._layer(index, opened, waiting, last_uses, read_once))
            waiting = [*layers[-1].hands_on]
        return tuple(map(_last_first, _tied(layers)) if looks_back else _tied(layers))

    def _check_tied(self, where: str, operation: LayerOperation, shape: Shape) -> None:
        """Check that a layer can have the weights of the embedding that it names."""
        named = next((opened for opened in self._opened if opened.name == operation.tied), None)
        if named is None or not named.operation.looks_up:
            raise InputError(
                f"{where}: `tied` = {operation.tied!r}: no embedding before it has that name"
            )
        if any(opened.operation.tied == operation.tied for opened in self._opened):
            raise InputError(
                f"{where}: `tied` = {operation.tied!r}: another layer has its weights already"
            )
        wanted = named.reads.shape[0], named.makes.shape[0], 1, 1
        weights = operation.weight_shape(shape, operation.output([shape]))
        if weights != wanted or operation.groups > 1:
            raise InputError(
                f"{where}: `tied` = {operation.tied!r}: its weights are {shown(weights)}, those of"
                f" the embedding, transposed, {shown(wanted)}; should be a conv with `kernel` = 1"
                f" and `channels` = {wanted[0]} over {plural(wanted[1], 'channel')}"
            )

    def _check_symbols(self) -> None:
        """Check that symbols, and nothing else, are looked up."""
        takers = [opened for opened in self._opened if opened.reads.is_images]
        by_steps = any(
            tensor.is_images
            for opened in self._opened
            for step in opened.sfu
            for tensor in step.reads
        )
        looks_up = [opened for opened in self._opened if opened.operation.looks_up]
        if looks_up and (by_steps or takers != looks_up):
            raise InputError(
                f"{self._places[looks_up[0].makes.number]}: an embedding looks up the network's"
                " inputs, the numbers of symbols, which no other operation can take"
            )

    def _check_tables(self) -> None:
        """Check that others take what tables of terms stand beside: they give no errors."""
        taken = {opened.reads.number for opened in self._opened}
        steps = [step for opened in self._opened for step in opened.sfu]
        for step in steps:
            if step.operation.type != "score-table":
                taken.update(tensor.number for tensor in step.reads)
        for step in steps:
            if step.operation.type == "score-table" and step.reads[0].number not in taken:
                raise InputError(
                    f"{self._places[step.makes.number]}: nothing else takes its input; `from`"
                    " should name the queries, keys and values before which attention takes it"
                )

    def _last_uses(self) -> dict[int, tuple[int, bool]]:
        """Return for each tensor the last layer that uses it, and whether its SFU does, which works
        after it.
        """
        assert self._result is not None
        # Compared as pairs: (2, False) < (2, True) < (3, False)
        #                   layer 2      its SFU     layer 3
        uses: dict[int, tuple[int, bool]] = {}
        for index, opened in enumerate(self._opened):
            uses[opened.reads.number] = index, False
            uses.update(
                (tensor.number, (index, True)) for step in opened.sfu for tensor in step.reads
            )
        # The loss takes the result, behind the last layer.
        return {**uses, self._result.number: (len(self._opened), False)}

    def _layer(
        self,
        index: int,
        opened: _Opened,
        waiting: Sequence[Tensor],
        last_uses: dict[int, tuple[int, bool]],
        read_once: set[int],
    ) -> Layer:
        """Return a layer, where the tensors that were made before it, and are still needed, are
        `waiting`.
        """
        bypass = [
            tensor
            for tensor in waiting
            if last_uses.get(tensor.number, (-1, False)) >= (index, True)
        ]
        here = [*waiting, *_made_by(opened)]
        hands_on = [
            tensor for tensor in here if last_uses.get(tensor.number, (-1, False)) > (index, True)
        ]
        return Layer(
            index,
            opened.name,
            opened.reads,
            opened.makes,
            tuple(bypass),
            tuple(hands_on),
            opened.operation,
            tuple(opened.sfu),
            read_once=frozenset({tensor.number for tensor in (opened.reads, *bypass)} & read_once),
            vocabulary_parallel=self._vocabulary_parallel and index == len(self._opened) - 1,
        )

    def _read_once(self) -> set[int]:
        """Return the tensors that one layer's operation reads, and nothing else."""
        by_layers = Counter(opened.reads.number for opened in self._opened)
        by_steps = {
            tensor.number for opened in self._opened for step in opened.sfu for tensor in step.reads
        }
        assert self._result is not None
        return (
            {number for number, uses in by_layers.items() if uses == 1}
            - by_steps
            - {self._result.number}
        )

    def _open(
        self, where: str, operation: LayerOperation, named: str | None, reads: Tensor, shape: Shape
    ) -> Tensor:
        self._counts[operation.type] += 1
        name = named or f"{operation.type}{self._counts[operation.type]}"
        made = self._next_tensor(shape, name)
        self._name(where, name, made)
        self._opened.append(_Opened(name, operation, reads, made))
        return made

    def _next_tensor(self, shape: Shape, name: str) -> Tensor:
        return Tensor(len(self._places) + 1, shape, name)

    def _name(self, where: str, name: str, tensor: Tensor) -> None:
        if name in self._named or not re.fullmatch(r"[\w-]+", name):
            raise InputError(
                f"{where}: `name` = {name!r}: names are unique, of letters, digits, _ and -"
            )
        self._named[name] = tensor

    def _named_tensor(self, where: str, name: str) -> Tensor:
        if name not in self._named:
            known = ", ".join(list(self._named)[-4:])
            raise InputError(
                f"{where}: `from` = {name!r}: no operation before it has that name (the last are"
                f" {known}); operations stand in the order in which data flow, so what comes later"
                " would close a cycle"
            )
        return self._named[name]


def _last_first(layer: Layer) -> Layer:
    steps = tuple(dataclasses.replace(step, last_first=True) for step in layer.sfu)
    return dataclasses.replace(layer, sfu=steps, last_first=True)


def _tied(layers: Sequence[Layer]) -> list[Layer]:
    """Return the layers with the embeddings that they are tied to."""
    by_name = {layer.name: layer for layer in layers}
    names = {layer.operation.tied for layer in layers}
    return [
        dataclasses.replace(
            layer,
            tied=None if layer.operation.tied is None else by_name[layer.operation.tied],
            shares_weights=layer.operation.tied is not None or layer.name in names,
        )
        for layer in layers
    ]


def _made_by(opened: _Opened) -> list[Tensor]:
    return [opened.makes, *(step.makes for step in opened.sfu)]


def _output(where: str, operation: Operation, shapes: Sequence[Shape]) -> Shape:
    try:
        return operation.output(shapes)
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None
