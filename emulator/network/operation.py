"""An operation of a network: everything that mapping, timing and import need to know about it.

Each operation is a frozen dataclass in a file of `operations/`, derived from `SfuOperation` or
`LayerOperation`: its fields are the keys of a network's TOML file, with their ranges
(`common/types.py`). With it are its nodes in ONNX files, both ways, and its unit, which computes
(`unit.py`). Kernels are in `kernels/layers`.

Row maps say which row waits for which where an operation slides a window over its input;
`operation_types` has all operations by their names in TOML files.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels import extent, registry, subclasses
from .onnx_nodes import Arrays, Export
from .shape import Pair, Shape, Tensor
from .unit import ActivationUnit, Site, Unit

if TYPE_CHECKING:
    from .onnx_graph import OnnxNode, Value, Walk


class Arithmetic(NamedTuple):
    """What special function units compute, forward and back, in single precision.

    Divisions are roots, too, and exponentials logarithms. Sums and comparisons alone, as of biases,
    joins, pools and ReLU, are none of these.
    """

    multiply_adds: int = 0
    exponentials: int = 0
    divisions: int = 0

    def times(self, count: int) -> Arithmetic:
        """Return as much for each of a number of values."""
        return Arithmetic(*(count * number for number in self))


class Operation(abc.ABC):
    """The interface of all operations."""

    type: ClassVar[str]
    """Its name in TOML files."""

    joins: ClassVar[bool] = False
    """Whether it takes the results of two or more operations, which it must name."""

    never_negative: ClassVar[bool] = False
    """Whether all its results are 0 or above."""

    torch_form: ClassVar[Literal["maps", "rows", "last"]] = "maps"
    """What its module of PyTorch takes: maps (samples, channels, rows, columns), rows of a sequence
    (samples, rows, channels), or maps with channels last.
    """

    torch_names: ClassVar[Mapping[str, str]] = {}
    """Its arrays, with their names in its module where these are others."""

    onnx: ClassVar[tuple[str, ...]] = ()
    """The ONNX operators that become this operation."""

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """Add a step for a node of an imported graph to the walk; return its result.

        Raises:
            InputError: the node does what the operation cannot.
        """
        raise NotImplementedError(f"{cls.type} does not come from ONNX")

    @classmethod
    def from_arrays(cls, node: OnnxNode, arrays: Arrays) -> Arrays:
        """Return its parameters, as results files have them, from the arrays of its step in the
        walk.
        """
        return {key: array.reshape(-1) for key, array in arrays.items()}

    def to_onnx(self, out: Export) -> None:
        """Write the nodes of a network's operation into an ONNX file.

        Raises:
            InputError: ONNX has no words for it.
        """
        raise out.refusal(f"{self.type} ({out.layer})")

    @abc.abstractmethod
    def output(self, inputs: Sequence[Shape]) -> Shape:
        """Return the shape of the result.

        Raises:
            ValueError: the inputs do not fit; the message says why.
        """


class SfuOperation(Operation):
    """An operation on complete outputs, done by a layer's special function unit (FPDeep, section
    5.3).
    """

    by_channel: ClassVar[bool] = False
    """Whether each channel of the result follows from the same channel of one input."""

    keeps_map: ClassVar[bool] = False
    """Whether its backward pass needs all values of its inputs, or of its result, and not bits of
    each alone.
    """

    collects_map: ClassVar[bool] = False
    """Whether it needs room for whole maps of its inputs, and of its errors, before it makes their
    first row.
    """

    @property
    def he_gain(self) -> float:
        """Factor on the variance of the initial weights before it (He et al., 2015)."""
        return 1.0

    of_value: ClassVar[Arithmetic] = Arithmetic()
    """The arithmetic of a value of its result."""

    def arithmetic(self, shape: Shape, made: Shape) -> Arithmetic:
        """Return the arithmetic of a sample, from the shapes of its first input and of its
        result.
        """
        return self.of_value.times(math.prod(made))

    def resolved(self, inputs: Sequence[Shape]) -> SfuOperation:
        """Return the operation for inputs of these shapes, which may be another one."""
        return self

    def parameters(self, made: Shape) -> int:
        """Return the number of its parameters, where its results have this shape."""
        return 0

    may_begin: ClassVar[bool] = False
    """Whether it may stand before the first layer: then the source of images does it."""

    corner: ClassVar[Pair] = (0, 0)
    """Rows and columns of zeros that it then puts before the first."""

    def rows(self, shape: Shape, made: Shape) -> SfuRows | None:
        """Return which row of the result waits for which row of an input of this shape; None where
        each waits for the same row.
        """
        return None

    def row_maps(self, inputs: Sequence[Shape], made: Shape) -> Sequence[SfuRows | None]:
        """Return the same for each of its inputs."""
        return [self.rows(shape, made) for shape in inputs]

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """Return the unit that carries it out, by default its activation's, with the same keys."""
        keys = [float(key) for key in vars(self).values()]  # in the order of its fields
        return ActivationUnit(self.type, keys, site)

    def torch(self, nn: Any, shape: Shape) -> Any:
        """Return the equivalent module of PyTorch's `torch.nn`, on a first input of this shape.

        Raises:
            ValueError: there is none.
        """
        raise ValueError(f"{self.type} is no module of PyTorch")


@dataclasses.dataclass(frozen=True)
class SfuStep:
    """One operation of a special function unit; `input` is the first of the tensors that it
    `reads`.

    Errors are numbered from the last row on where they go so (`last_first`).
    """

    operation: SfuOperation
    reads: tuple[Tensor, ...]
    makes: Tensor
    last_first: bool = False

    @property
    def input(self) -> Shape:
        """(channels, rows, columns)"""
        return self.reads[0].shape

    @property
    def output(self) -> Shape:
        """(channels, rows, columns)"""
        return self.makes.shape

    @functools.cached_property
    def row_maps(self) -> tuple[SfuRows | None, ...]:
        """The row maps of each tensor that it reads: which row waits for which; None where each row
        waits for the same row.
        """
        maps = self.operation.row_maps([tensor.shape for tensor in self.reads], self.output)
        if not self.last_first:
            return tuple(maps)
        return tuple(None if rows is None else rows.last_first() for rows in maps)

    @property
    def rows(self) -> SfuRows | None:
        """The row maps of the first tensor that it reads."""
        return self.row_maps[0]


class Window(NamedTuple):
    """The window of a convolution: (rows, columns) each; places of its kernel are `dilation`
    apart.
    """

    kernel: Pair
    stride: Pair
    pad: Pair
    dilation: Pair = (1, 1)

    @property
    def extent(self) -> Pair:
        """What the kernel reaches over."""
        return extent(self.kernel, self.dilation)


class EngineView(NamedTuple):
    """A layer's dimensions as engines see them: rows and columns of its maps, `tile` = K·K,
    `values` of a channel.
    """

    in_rows: int
    in_columns: int
    out_rows: int
    out_columns: int
    tile: int
    values: int


class LayerOperation(Operation):
    """An operation with weights, which opens a layer: the mapping cuts it by channels."""

    bias: bool

    convolves: ClassVar[bool]
    """Whether it is a convolution, which papers count separately."""

    may_be_off_chip: ClassVar[bool]
    """Whether its parameters may be kept off chip (FPDeep, sections 6.3.1 and 7): each is used once
    a sample.
    """

    one_memory: ClassVar[bool]
    """Whether each buffer is a single memory, because tiles take turns; otherwise there is one for
    each channel.
    """

    groups: int = 1
    """Equal parts of its input channels; output channels fall into as many, each a sum over one of
    them.
    """

    recurs: ClassVar[bool] = False
    """Whether a row's result is an input of the next row: then it is cut by output channels."""

    looks_back: ClassVar[bool] = False
    """Whether a row's result depends on rows before it: then errors go back from the last row on.
    """

    has_pg: ClassVar[bool] = True
    """Whether it has weights, whose gradients PG computes."""

    tied: str | None = None
    """The name of the embedding whose weights it has, transposed."""

    looks_up: ClassVar[bool] = False
    """Whether a row of its inputs is one symbol, by which it looks up a row of weights."""

    @property
    def cuts_outputs(self) -> bool | None:
        """Whether it is always cut by output channels, or never; None leaves it to the number of
        its channels.
        """
        return None

    @property
    def makes_logits(self) -> bool:
        """Whether slices of its output channels can compute their parts of the loss that closes the
        network.
        """
        return False

    def weight_shape(self, shape: Shape, made: Shape) -> tuple[int, int, int, int]:
        """Return (oc, ic, kh, kw) of its weights, from the shapes of input and output."""
        return made[0], shape[0], *self.window(shape).kernel

    def pieces(self, made: Shape) -> int:
        """Return how many pieces a cut by output channels may have; 1 if it is indivisible."""
        return made[0]

    def taps(self, shape: Shape, *, with_inputs: bool = True) -> int:
        """Return the K×K convolutions for each pixel of a piece; not `with_inputs`, those of its
        own state alone.
        """
        return shape[0]

    def eb_taps(self, shape: Shape, *, with_inputs: bool = True) -> int:
        """Return the same of EB."""
        return self.taps(shape, with_inputs=with_inputs)

    def reread(self, shape: Shape, rows_at_once: int = 1) -> Reread:
        """Return what of a piece and a sample FP and EB move, beside inputs, where these are off
        chip.

        They move what a row needs once for `rows_at_once` rows.
        """
        return Reread()

    def arithmetic(self, shape: Shape, made: Shape) -> Arithmetic:
        """Return what of a sample is not done by its engines, but as in a special function unit."""
        return Arithmetic()

    def kept_values(self, shape: Shape) -> int:
        """Return the values of a sample that are kept for the backward pass besides its inputs."""
        return 0

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        raise out.refusal(f"{self.type} ({out.layer}) on {out.form.value}")

    @abc.abstractmethod
    def with_channels(self, channels: int) -> LayerOperation:
        """Return the same operation with another number of output channels."""

    @abc.abstractmethod
    def window(self, shape: Shape) -> Window:
        """Return the window that slides over an input of this shape."""

    @abc.abstractmethod
    def rows(self, shape: Shape, made: Shape) -> LayerRows:
        """Return which row waits for which, from the shapes of input and output."""

    @abc.abstractmethod
    def engine_view(self, shape: Shape, made: Shape) -> EngineView:
        """Return the layer's dimensions as engines and buffers see them, from the shapes of input
        and output.
        """

    @abc.abstractmethod
    def torch(self, nn: Any, shape: Shape) -> Sequence[Any]:
        """Return the equivalent modules of PyTorch's `torch.nn`, on an input of this shape.

        Raises:
            ValueError: there are none.
        """

    @classmethod
    def from_torch(cls, arrays: Arrays) -> Arrays:
        """Return its arrays, by name, from those of its module; they need not have their shapes."""
        return arrays


class RowLayer(LayerOperation):
    """A layer that takes a sequence, one row of one column at a time, in tiles of one
    multiplier.
    """

    torch_form = "rows"
    convolves, may_be_off_chip, one_memory = False, False, True

    def window(self, shape: Shape) -> Window:
        """See `LayerOperation`."""
        return Window((1, 1), (1, 1), (0, 0))

    def engine_view(self, shape: Shape, made: Shape) -> EngineView:
        """See `LayerOperation`."""
        return EngineView(shape[1], 1, shape[1], 1, tile=1, values=1)


class Closing(Operation):
    """An operation that closes a network: the loss, which takes the network's outputs as they
    are.
    """

    vocabulary_parallel: bool
    """Whether slices of the layer before it compute their own parts of it."""

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0]


def windows(shape: Shape, window: Window, *, ceil: bool = False) -> Pair:
    """Return the number of windows that fit, down and across; with `ceil`, that of those which
    begin within.

    Raises:
        ValueError: none fits, or the padding is as large as the window.
    """
    for size, kernel, pad in zip(shape[1:], window.extent, window.pad, strict=True):
        if pad >= kernel:
            raise ValueError(f"`pad` = {pad} must be less than the kernel, {kernel}")
        if kernel > size + 2 * pad:
            raise ValueError(
                f"`kernel` = {kernel} is larger than its input of {size} with padding {pad} on each"
                " side"
            )
    counts = []
    sides = zip(shape[1:], window.extent, window.stride, window.pad, strict=True)
    for size, kernel, stride, pad in sides:
        count, left = divmod(size + 2 * pad - kernel, stride)
        # The one beyond those that fit begins within the map, or its padding before (PyTorch).
        counts.append(count + 1 + (ceil and left > 0 and (count + 1) * stride < size + pad))
    rows, columns = counts
    return rows, columns


RowMap = NDArray[np.int64]


def rows_needed(rows_in: int, rows_out: int, kernel: int, stride: int, pad: int) -> RowMap:
    """Return for each output row of a window operation the last input row that it waits for: the
    last in its window.

    The last output row waits for the whole map, even where windows leave out its end, so that no
    error comes back for rows that have not arrived.
    """
    last = np.arange(rows_out) * stride - pad + kernel - 1
    last[-1] = rows_in - 1
    return np.clip(last, 0, rows_in - 1)


def rows_reaching(rows_in: int, rows_out: int, kernel: int, stride: int, pad: int) -> RowMap:
    """Return for each input row of a window operation the last output row whose error it receives,
    at least one.
    """
    last = (np.arange(rows_in) + pad) // stride
    return np.clip(last, 0, rows_out - 1)


class Reread(NamedTuple):
    """Values that FP reads again off chip, those that EB does, and sums that EB reads and
    writes.
    """

    fp: int = 0
    eb: int = 0
    sums: int = 0


@dataclasses.dataclass(frozen=True)
class LayerRows:
    """The row maps of an operation with weights.

    `fp`: for each output row, the last input row that FP waits for. `eb`: for each row that EB
    computes, the last row of output errors that it waits for. `eb_leaves`: for each input row, the
    row of EB that its errors leave with. EB goes over rows of input errors, or `by_outputs` over
    those of output errors.
    """

    fp: RowMap
    eb: RowMap
    eb_leaves: RowMap
    by_outputs: bool = False

    def last_first(self) -> LayerRows:
        """Return the maps with errors numbered as they go where time runs backwards: the last row
        is 0.

        EB of a row then waits for the first output row that its input row reaches.
        """
        rows_in, rows_out = len(self.eb_leaves), len(self.fp)
        if self.by_outputs or len(self.eb) != rows_in:  # they may be made at once
            return self
        return dataclasses.replace(self, eb=_reached_last_first(self.fp, rows_in, rows_out))


@dataclasses.dataclass(frozen=True)
class SfuRows:
    """The row maps of an operation of an SFU: for each output row the input row, and for each error
    row the reverse, -1 where it waits for none.
    """

    forward: RowMap
    backward: RowMap

    def last_first(self) -> SfuRows:
        """Return the maps with errors numbered from the last row on; see `LayerRows.last_first`."""
        backward = _reached_last_first(self.forward, len(self.backward), len(self.forward))
        return dataclasses.replace(self, backward=backward)


@dataclasses.dataclass(frozen=True)
class JoinedRows(SfuRows):
    """The row maps of an input whose rows stand among those of others, from row `first` on.

    The unit begins once the first row of each input has come: rows before its own wait for that,
    those behind for its last one. Its errors are those of its own rows alone.
    """

    first: int

    @classmethod
    def of(cls, rows: int, first: int, made: int) -> JoinedRows:
        """Return them of a number of rows, among as many as are made."""
        own = np.arange(rows)
        return cls(np.clip(np.arange(made) - first, 0, rows - 1), own + first, first)

    def last_first(self) -> SfuRows:
        """See `SfuRows`."""
        backward = len(self.forward) - 1 - self.backward[::-1]
        return dataclasses.replace(self, backward=backward)


def _reached_last_first(forward: RowMap, rows_in: int, rows_out: int) -> RowMap:
    """Return for each error row, from the last on, the number of the last error of its outputs, in
    the same order.
    """
    first = np.searchsorted(forward, np.arange(rows_in))
    return (rows_out - 1 - first)[::-1]


@registry
def operation_types() -> Mapping[str, type[Operation]]:
    """Return the operations of the folder `operations/` by name."""
    kinds = subclasses(f"{__package__}.operations", Operation)  # type: ignore[type-abstract]  # its subclasses
    return {kind.type: kind for kind in kinds if hasattr(kind, "type")}
