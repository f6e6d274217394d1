"""The formats of a run's numbers, how they are rounded, and which multipliers they need.

Complete maps are narrow, sums are wide: what a layer hands on is rounded to its format once, on the
device that has it whole, and partial sums stay in single precision. So a run's numbers do not
depend on how its network is cut.

    activations   images at the source; results of an SFU that are handed on
    errors        those of outputs, after the SFU's backward pass; those of inputs, where the map
                  has one consumer
    weights       once after each update. Biases and what an SFU learns stay in fp32
    gradients     the mean of a mini-batch, before it is exchanged or the update takes it
    master        the weights that updates change, from which those of FP and EB are rounded
    states        what updates remember: velocities and moments

Within attention, shares and errors of scores are operands of products: they are rounded as
activations and errors are. What softmax computes stays in single precision, and so do its
statistics, and the products of errors and values, which are sums.

Within recurrent layers, states are rounded as activations, and errors of gates as errors. Gates,
cells and biases stay in single precision.

`accumulate` is the format of sums: fp32; bf16 and fp16, rounded after each product; int32 of fixed
point; or `dot:N`: the N products of a block are added exactly, and blocks in fp32. Blocks lie along
what is summed, so what is summed in two directions is rounded in blocks of each
(`Precision.turns`).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping

from ...kernels.number import (
    BF16,
    FP16,
    FP32,
    WIDE_BITS,
    BlockGrid,
    FloatGrid,
    NumberFormat,
    Rounding,
    number_format,
    number_formats,
)
from ..common import did_you_mean, either
from .classes import joint_class, joint_classes
from .exact import sum_bits
from .history import check_history, history_of, scaling_text
from .loss_scale import loss_scale_of, loss_scale_text
from .storage import Storage
from .text import (
    KINDS,
    LAYER_KEYS,
    NARROW,
    OTHER_NAMES,
    epoch_tables,
    layer_tables,
    layer_word,
    table_of,
)

OF_WEIGHTS = "weights", "gradients", "master", "states"
"""What of weights has a format."""
_SCALES = "up", "floor"
_DOTS = {f"dot:{size}": size for size in (8, 16, 32)}
"""Products of a block that is summed exactly."""
_SQUARES = {"none": 0, **{f"{side}x{side}": side for side in (8, 16, 32)}}
"""Sides of square blocks of weights."""
_SUMS = {"fp32": FP32, "int32": FP32, "bf16": BF16, "fp16": FP16, **dict.fromkeys(_DOTS, FP32)}
"""What sums may be, and a format of as many bits."""


@dataclasses.dataclass(frozen=True)
class Precision:
    """The format of each kind, how it is rounded, and by how much errors are scaled up
    (`loss_scale`).

    A scale that follows overflows begins there, and doubles after `grows_every` updates without.
    """

    activations: NumberFormat = FP32
    weights: NumberFormat = FP32
    errors: NumberFormat = FP32
    gradients: NumberFormat = FP32
    master: NumberFormat = FP32
    states: NumberFormat = FP32
    rounding: tuple[Rounding, ...] = (Rounding.EVEN,) * len(KINDS)
    """Of each kind, in the order of `KINDS`."""
    scale: str = "up"
    accumulate: str = "fp32"
    hadamard: int = 0
    """Pixels of a block that PG transforms before it rounds them; 0: none."""
    history: int = 0
    """Mini-batches whose largest numbers tell the scales of maps and weights; 0: these have
    none.
    """
    square: int = 0
    """Output and input channels of a block of weights, whose formats have such blocks; 0: blocks
    lie along one of them.
    """
    loss_scale: int = 1
    grows_every: int = 0
    layers: tuple[tuple[str, Precision], ...] = ()
    """Layers, by name or FIRST:LAST, whose formats differ, and theirs; of several that name a
    layer, the last is its own.
    """
    epochs: tuple[tuple[int, Precision], ...] = ()
    """Epochs, counted from 1, from each of which on formats are others, and these; ascending."""

    @classmethod
    def all_in(cls, number: NumberFormat) -> Precision:
        """Return the precision whose activations, weights and errors are in one format."""
        return cls(number, number, number)

    def format(self, kind: str) -> NumberFormat:
        """Return the format of a kind."""
        value: NumberFormat = getattr(self, kind)
        return value

    def rounding_of(self, kind: str) -> Rounding:
        """Return how a kind is rounded."""
        return self.rounding[KINDS.index(kind)]

    @property
    def phases(self) -> tuple[tuple[int, Precision], ...]:
        """The formats of all epochs before the first of `epochs`, and of those from each on, after
        the number of epochs that are done then.
        """
        first = dataclasses.replace(self, epochs=())
        return (0, first), *((epoch - 1, own) for epoch, own in self.epochs)

    @property
    def all_of(self) -> tuple[Precision, ...]:
        """The run's, then those of `layers`."""
        return self, *(own for _, own in self.layers)

    def of(self, formats: int) -> Precision:
        """Return that of layers and tensors marked with a number: 0 is the run's."""
        return self.layers[formats - 1][1] if formats else self

    def reading(self, other: Precision) -> Precision:
        """Return the precision of engines that read activations of another."""
        rounding = (other.rounding[0], *self.rounding[1:])
        return dataclasses.replace(self, activations=other.activations, rounding=rounding)

    @property
    def is_single(self) -> bool:
        """Whether all numbers are in single precision, and none is scaled."""
        return self == SINGLE

    @property
    def one(self) -> NumberFormat | None:
        """The format of activations, weights and errors, if all layers have the same."""
        is_one = self.activations == self.weights == self.errors
        return self.activations if is_one and not self.layers else None

    @property
    def _one_name(self) -> NumberFormat | None:
        """The same, but for squares of weights."""
        names = {self.format(kind).name for kind in NARROW}
        return self.activations if len(names) == 1 and not self.layers else None

    @property
    def dot(self) -> int:
        """How many products are summed exactly before fp32 takes them; 0: none."""
        return _DOTS.get(self.accumulate, 0)

    @property
    def added_products(self) -> int:
        """Products for which there is one addition in fp32; 0 where sums are whole numbers."""
        return 0 if self.accumulate == "int32" else max(1, self.dot)

    @property
    def turns(self) -> bool:
        """Whether EB reads weights of its own, in blocks of output channels, where those of FP are
        of input channels.
        """
        return self.dot > 0 and self.weights.block > 0 and not self.square

    @property
    def turns_by_chance(self) -> bool:
        """Whether these cannot be rounded again from what updates change."""
        return self.turns and self.rounding_of("weights") is Rounding.STOCHASTIC

    @property
    def whole_channels(self) -> int:
        """Channels that a cut must leave together where blocks are summed: whole blocks of
        products, and of weights.
        """
        return math.lcm(self.dot, self.weight_block) if self.dot else 1

    @property
    def weight_block(self) -> int:
        """Weights in a row that are whole blocks of all that has a format of them; 1 without
        blocks.
        """
        return math.lcm(*(self.format(kind).block or 1 for kind in OF_WEIGHTS))

    @property
    def has_tensors_of_weights(self) -> bool:
        """Whether weights, or what is kept of them, have a scale of a whole tensor."""
        return any(self.format(kind).tensor_bytes for kind in OF_WEIGHTS)

    @property
    def has_copies(self) -> bool:
        """Whether weights that engines read are a copy of those that updates change, in a format of
        their own.
        """
        return self.weights != self.master

    def scales(self, kind: str) -> bool:
        """Whether a kind of maps has scales by the largest numbers of mini-batches before."""
        return self.history > 0 and isinstance(self.format(kind).grid, FloatGrid)

    @property
    def scales_weights(self) -> bool:
        """Whether weights that engines read have a scale by the largest ones of updates before."""
        return self.has_copies and self.scales("weights")

    @property
    def scales_maps(self) -> bool:
        """Whether maps have such scales, of one kind at least."""
        return self.scales("activations") or self.scales("errors")

    @property
    def multipliers(self) -> tuple[str, str, str]:
        """The classes of multipliers of FP, EB and PG: each engine's is the narrowest that holds
        both its operands.
        """
        return self.multipliers_of(attends=False)

    def multipliers_of(self, *, attends: bool) -> tuple[str, str, str]:
        """Return the same of a network with attention or without: of attention, EB multiplies
        activations, too, by each other and by errors. Engines are built once, for all epochs.
        """
        activations, weights, errors = (self.format(kind).multiplier for kind in NARROW)
        back = joint_class(errors, weights)
        classes = (
            joint_class(activations, weights),
            joint_class(back, activations) if attends else back,
            joint_class(activations, errors),
        )
        for _, own in self.epochs:
            classes = joint_classes(classes, own.multipliers_of(attends=attends))
        return classes

    def storage(self, states: int) -> Storage:
        """Return the formats of memories, with this number of states of each parameter beside its
        gradient.
        """
        master = (self.master,) if self.has_copies else ()
        arrays = self.weights, self.sums, *master, *(self.states,) * states
        return Storage(
            self.activations,
            self.errors,
            self.sums,
            arrays,
            2 + states,
            has_copies=self.has_copies,
            dot=self.dot,
            has_scales=self.scales_weights,
            made=self.activations,
            layers=tuple(own.storage(states) for _, own in self.layers),
        )

    @property
    def sums(self) -> NumberFormat:
        """The format of partial sums, and of gradients until they are whole; int32 takes as many
        bits as fp32.
        """
        return _SUMS[self.accumulate]

    def __str__(self) -> str:
        """Return it as text that `precision_of` reads: `mxfp8 master=bf16
        rounding.weights=stochastic`.
        """
        plain = dataclasses.replace(self, layers=(), epochs=())
        one = plain._one_name
        base = Precision.all_in(one or FP32)
        words = [base.activations.name] if one else []
        words += [
            f"{kind}={self.format(kind).name}"
            for kind in KINDS
            if self.format(kind).name != base.format(kind).name
        ]
        if self.scale != base.scale:
            words.append(f"scale={self.scale}")
        if len({*self.rounding}) == 1 and self.rounding != base.rounding:
            words.append(f"rounding={self.rounding[0].name.lower()}")
        elif self.rounding != base.rounding:
            of_kinds = zip(KINDS, self.rounding, base.rounding, strict=True)
            words += [
                f"rounding.{kind}={own.name.lower()}"
                for kind, own, usual in of_kinds
                if own is not usual
            ]
        if self.accumulate != base.accumulate:
            words.append(f"accumulate={self.accumulate}")
        if self.hadamard:
            words.append(f"hadamard={self.hadamard}")
        if self.square:
            words.append(f"block={block_text(self.square)}")
        if self.history:
            words.append(f"scaling={scaling_text(self.history)}")
        if self.grows_every:
            words.append(f"loss_scale={loss_scale_text(self.loss_scale, self.grows_every)}")
        elif self.loss_scale != base.loss_scale:
            words.append(f"loss_scale={self.loss_scale}")
        return " ".join([*words, *self._layer_words(), *self._epoch_words()])

    def _layer_words(self) -> Iterator[str]:
        """Yield the words of layers: what differs from the run's."""
        for name, own in self.layers:
            words = [*self._words_of(own)] or [("accumulate", own.accumulate)]
            yield from (layer_word(name, key, value) for key, value in words)

    def _epoch_words(self) -> Iterator[str]:
        """Yield the words of epochs: what differs from the run's, and their layers, if these do."""
        for epoch, own in self.epochs:
            plain = self._words_of(dataclasses.replace(own, layers=()))
            words = [word if key == "format" else f"{key}={word}" for key, word in plain]
            layers = [*own._layer_words()]
            words += layers if layers != [*self._layer_words()] else []
            for word in words or [f"accumulate={own.accumulate}"]:
                yield f"epoch.{epoch}{'.' if '=' in word else '='}{word}"

    def _words_of(self, own: Precision) -> Iterator[tuple[str, str]]:
        base, one = self, own._one_name
        if one is not None and {self.format(kind).name for kind in NARROW} != {one.name}:
            yield "format", one.name
            base = Precision(one, one, one, self.gradients, self.master, self.states)
        for kind in KINDS:
            if own.format(kind).name != base.format(kind).name:
                yield kind, own.format(kind).name
        if own.scale != self.scale:
            yield "scale", own.scale
        for kind, ours, theirs in zip(KINDS, own.rounding, self.rounding, strict=True):
            if ours is not theirs:
                yield f"rounding.{kind}", ours.name.lower()
        if own.accumulate != self.accumulate:
            yield "accumulate", own.accumulate
        if own.hadamard != self.hadamard:
            yield "hadamard", str(own.hadamard)
        if own.square != self.square:
            yield "block", block_text(own.square)
        if own.history != self.history:
            yield "scaling", scaling_text(own.history)


SINGLE = Precision()
"""Single precision throughout."""


def precision_of(given: object) -> Precision:
    """Return a precision from what the key `precision` may be: a format's name, a table, or such a
    table as text.

    Raises:
        ValueError: it is neither; the message says what would be right.
    """
    if isinstance(given, Precision):
        return given
    if isinstance(given, NumberFormat):
        return Precision.all_in(given)
    if isinstance(given, str):
        given = table_of(given)
    if not isinstance(given, Mapping):
        raise ValueError(
            "should be a format such as 'bf16', or a table such as { format = 'mxfp8', master ="
            " 'bf16' }"
        )
    table = dict(given)
    epochs = epoch_tables(table.pop("epoch", {}))
    run = _with_layers(table)
    phases = ((epoch, _from_epoch(epoch, run, table, own)) for epoch, own in epochs.items())
    return dataclasses.replace(run, epochs=tuple(phases))


def _with_layers(table: Mapping[str, object]) -> Precision:
    """Return the precision that a table says, with those of layers."""
    table = dict(table)
    layers = layer_tables(table.pop("layer", {}))
    precision = _of_table(table, (*LAYER_KEYS, "loss_scale"))
    check_dots(precision)
    return dataclasses.replace(
        precision, layers=tuple((name, _of_layer(name, table, own)) for name, own in layers.items())
    )


def _from_epoch(
    epoch: int, run: Precision, table: Mapping[str, object], own: Mapping[str, object]
) -> Precision:
    """Return the precision from an epoch on, from the run's, its table, and its own, which goes
    before it.
    """
    try:
        layers = layer_tables(table.get("layer", {})) | layer_tables(own.get("layer", {}))
        plain = {key: value for key, value in own.items() if key != "layer"}
        if "loss_scale" in plain:
            raise ValueError("`loss_scale` is the run's, of all epochs; leave it out")
        _of_table(plain, LAYER_KEYS)
        made = _with_layers({**_joined(table, plain), "layer": layers})
        sums = {name: of_layer.accumulate for name, of_layer in run.layers}
        for name, part in (("", made), *made.layers):
            if part.accumulate != sums.get(name, run.accumulate):
                raise ValueError(
                    f"accumulate = {part.accumulate!r}: engines are built once, and add in one way"
                    f" in all epochs; should be {sums.get(name, run.accumulate)!r}"
                )
    except ValueError as error:
        raise ValueError(f"epoch {epoch}: {error}") from None
    return made


def _joined(table: Mapping[str, object], own: Mapping[str, object]) -> dict[str, object]:
    """Return the run's table with another one, of a layer or an epoch, that goes before it."""
    kinds = {kind: own["format"] for kind in NARROW if "format" in own}
    rounding = own.get("rounding", {})
    if isinstance(rounding, Mapping):
        usual = table.get("rounding", "even")
        usual = usual if isinstance(usual, Mapping) else dict.fromkeys(KINDS, usual)
        rounding = {**usual, **rounding}
    both = {**table, **kinds, **own, "rounding": rounding}
    return {**both, "format": table.get("format", FP32)}


def _of_layer(name: str, table: Mapping[str, object], own: Mapping[str, object]) -> Precision:
    """Return the precision of a layer from the run's table, and its own, which goes before it."""
    try:
        if "loss_scale" in own:
            raise ValueError("`loss_scale` is the run's, of all layers; leave it out")
        _of_table(own, LAYER_KEYS)
        return _of_table(_joined(table, own), (*LAYER_KEYS, "loss_scale"))
    except ValueError as error:
        raise ValueError(f"layer {name!r}: {error}") from None


def _of_table(table: Mapping[str, object], known: tuple[str, ...]) -> Precision:
    """Return the precision that a table of keys says, without those of layers."""
    for key in table:
        if key not in known:
            more = (*known, "layer", "epoch") if "loss_scale" in known else known
            raise ValueError(f"{key!r}: {did_you_mean(str(key), more)}known: {', '.join(more)}")
    scale = _choice("scale", table.get("scale", "up"), _SCALES)
    formats = dict.fromkeys(NARROW, _format(table["format"])) if "format" in table else {}
    formats |= {kind: _at(kind, table[kind]) for kind in KINDS if kind in table}
    loss_scale, grows_every = loss_scale_of(table.get("loss_scale", 1))
    square = _SQUARES[_choice("block", table.get("block", "none"), tuple(_SQUARES))]
    formats = {kind: _scaled(number, scale) for kind, number in formats.items()}
    formats |= {kind: _squared(formats[kind], square) for kind in OF_WEIGHTS if kind in formats}
    return Precision(
        **formats,
        rounding=_roundings(table.get("rounding", "even")),
        scale=scale,
        accumulate=_accumulator(table.get("accumulate", "fp32")),
        hadamard=int(_choice("hadamard", str(table.get("hadamard", 0)), ("0", "4", "16"))),
        history=history_of(table.get("scaling", "none")),
        square=square,
        loss_scale=loss_scale,
        grows_every=grows_every,
        layers=(),
        epochs=(),
    )


def check_dots(precision: Precision) -> None:
    """Check that products of a block have one scale, and that their sum is exact.

    Raises:
        ValueError: they have several, or it may not be.
    """
    maps = {kind: precision.format(kind) for kind in ("activations", "errors")}
    check_history(precision.history, maps)
    given, size = f"accumulate = {precision.accumulate!r}", precision.dot
    if precision.hadamard and not (size and precision.activations.block and precision.errors.block):
        raise ValueError(
            f"hadamard = {precision.hadamard}: transforms pixels that PG rounds in blocks; should be"
            " with `accumulate` = 'dot:32', and activations and errors in blocks, such as 'mxfp4'"
        )
    if precision.square and not (size and precision.weights.block):
        raise ValueError(
            f"block = {block_text(precision.square)!r}: is of weights that FP and EB sum in"
            " blocks, each along its own way; should be with `accumulate` = 'dot:8', and weights in"
            " blocks, such as 'mxint8'"
        )
    if not size:
        return
    for kind in NARROW:
        number = precision.format(kind)
        if number.tensor_bytes:
            raise ValueError(
                f"{given}: blocks of {number.name} have scales that are no powers of two, and a"
                " second one along the way that layers are cut; should be blocks with one scale,"
                " such as 'mxfp4'"
            )
        if number.block % size:
            blocks = f" with block = {block_text(number.lines)!r}" if number.lines > 1 else ""
            raise ValueError(
                f"{given}: {kind} in {number.name}{blocks} have several scales in {size} products;"
                f" should be blocks of a multiple of {size}"
            )
    for pair in itertools.combinations(NARROW, 2):
        one, other = (precision.format(kind) for kind in pair)
        bits = sum_bits(one, other, size)
        if bits > WIDE_BITS:
            raise ValueError(
                f"{given}: an exact sum of {size} products of {pair[0]} in {one.name} and {pair[1]}"
                f" in {other.name} takes {bits} bits, for which there is no adder of {WIDE_BITS};"
                " should be formats of less range, such as 'mxint8'"
            )


def _format(name: object) -> NumberFormat:
    if isinstance(name, NumberFormat):
        return name
    if not isinstance(name, str):
        raise ValueError("should be a format's name, such as 'bf16'")
    return named_format(name)


def named_format(name: str) -> NumberFormat:
    """Return a format by its name.

    Raises:
        ValueError: there is none; the message says which is close, and what there is.
    """
    try:
        return number_format(name)
    except ValueError as error:
        raise ValueError(f"{did_you_mean(name, number_formats(), OTHER_NAMES)}{error}") from None


def _at(key: str, value: object) -> NumberFormat:
    try:
        return _format(value)
    except ValueError as error:
        raise ValueError(f"{key} = {value!r}: {error}") from None


def _scaled(number: NumberFormat, scale: str) -> NumberFormat:
    """Return a format whose blocks have their scales by OCP's rule, if that is asked for and they
    are powers of two.
    """
    if scale == "floor" and isinstance(number.grid, BlockGrid) and number.grid.scale is None:
        return dataclasses.replace(number, grid=dataclasses.replace(number.grid, floor=True))
    return number


def _squared(number: NumberFormat, side: int) -> NumberFormat:
    """Return a format whose blocks are squares, if these are asked for and its scales are powers of
    two.
    """
    if side and isinstance(number.grid, BlockGrid) and number.grid.scale is None:
        grid = dataclasses.replace(number.grid, size=side, lines=side)
        return dataclasses.replace(number, grid=grid)
    return number


def block_text(side: int) -> str:
    """Return what the key `block` says of squares."""
    return f"{side}x{side}" if side else "none"


def _choice(key: str, value: object, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise ValueError(f"{key} = {value!r}: should be {either([*map(repr, choices)])}")
    return str(value)


def _accumulator(value: object) -> str:
    if value == "kulisch":
        raise ValueError(
            f"accumulate = {value!r}: sums of all products would travel with all their bits where"
            f" layers are cut; should be {either([*map(repr, _SUMS)])}"
        )
    return _choice("accumulate", value, tuple(_SUMS))


def _roundings(given: object) -> tuple[Rounding, ...]:
    names = [rounding.name.lower() for rounding in Rounding]
    table = given if isinstance(given, Mapping) else dict.fromkeys(KINDS, given)
    for kind in table:
        _choice("rounding", kind, KINDS)
    return tuple(
        Rounding[_choice(f"rounding of {kind}", table.get(kind, "even"), tuple(names)).upper()]
        for kind in KINDS
    )
