"""A network as training and timing use it: layers with all shapes worked out (`graph.py` does
that).

The maps between operations are *tensors*, numbered in the order in which they are made; the images
are 0. Layers form one row, as on the chain. A tensor that is made before a layer and used after it
bypasses the layer: "a shortcut can be treated as extra channels of the convolution kernels being
bypassed by the shortcut" (FPDeep, section 3.2).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Literal

from ..common import IMAGENET_IMAGES, Figures, check_names, html_table, plural
from .operation import EngineView, LayerOperation, LayerRows, SfuStep, Window
from .shape import Pair, Shape, Tensor

Start = Literal["he", "xavier", "normal"]
"""The rules for first weights."""
FirstWeights = Start | Literal["uniform", "zero"]
"""The same, with those of adapters (`lora.py`)."""


@dataclasses.dataclass(frozen=True)
class Layer:
    """An operation with weights, and its SFU.

    It works on the tensor `reads`; its complete outputs are `makes`. The tensors in `bypass`, with
    `reads` if it is needed again, pass the layer unchanged, for its SFU or for later layers. After
    the SFU, the layer sends on `hands_on`, the tensors that later layers need. In a network with
    recurrent layers or attention all errors go `last_first`: from the last row, the last time step,
    on.
    """

    index: int
    name: str
    reads: Tensor
    makes: Tensor
    bypass: tuple[Tensor, ...]
    hands_on: tuple[Tensor, ...]
    operation: LayerOperation
    sfu: tuple[SfuStep, ...]
    last_first: bool = False
    read_once: frozenset[int] = frozenset()
    """Numbers of tensors that arrive here, and that nothing but one layer's operation, here or
    later, reads.
    """
    vocabulary_parallel: bool = False
    """Whether its outputs are logits, of whose loss each slice computes its own part."""
    tied: Layer | None = None
    """The embedding whose weights it has, transposed."""
    shares_weights: bool = False
    """Whether it has the weights of an embedding, or is an embedding that another layer is tied to.
    """
    frozen: bool = False
    """Whether a run leaves its parameters and moving averages as they are."""
    formats: int = 0
    """Which of a run's formats it has (`Precision.of`)."""
    classes: int = 0
    """Which of the boards' classes of FP, EB and PG its engines are of, in threes."""
    rows_at_once: int = 1
    """Rows for which a slice reads at once what each of them needs off chip
    (`Network.with_rows_at_once`).
    """
    adapts: str | None = None
    """The layer to whose results it adds, as LoRA's (`lora.py`)."""
    start: FirstWeights | None = None
    """The rule for its first weights, if that is not the network's."""
    own_stream: int | None = None
    """The number of its random stream, if that is not its index."""

    def with_tensors(self, marked: Callable[[Tensor], Tensor]) -> Layer:
        """Return the layer with its tensors, those of its SFU among them, marked."""

        def step_of(step: SfuStep) -> SfuStep:
            return dataclasses.replace(
                step, reads=tuple(map(marked, step.reads)), makes=marked(step.makes)
            )

        return dataclasses.replace(
            self,
            reads=marked(self.reads),
            makes=marked(self.makes),
            bypass=tuple(map(marked, self.bypass)),
            hands_on=tuple(map(marked, self.hands_on)),
            sfu=tuple(map(step_of, self.sfu)),
        )

    @property
    def input(self) -> Shape:
        """(channels, rows, columns) of its inputs."""
        return self.reads.shape

    @property
    def output(self) -> Shape:
        """(channels, rows, columns) of its complete outputs, before the SFU."""
        return self.makes.shape

    @property
    def feeds(self) -> Shape:
        """(channels, rows, columns) of the SFU's last result."""
        return self.sfu[-1].output if self.sfu else self.output

    @property
    def stream(self) -> int:
        """The number of the random stream of all that is drawn for it."""
        return self.index if self.own_stream is None else self.own_stream

    @property
    def channels(self) -> int:
        """Number of output channels."""
        return self.makes.shape[0]

    @functools.cached_property
    def window(self) -> Window:
        """Kernel, stride and padding."""
        return self.operation.window(self.input)

    @property
    def kernel(self) -> Pair:
        """(rows, columns)"""
        return self.window.kernel

    @property
    def bias(self) -> bool:
        """Whether each output channel has a bias."""
        return self.operation.bias

    @property
    def convolves(self) -> bool:
        """Whether this is a convolution, which papers count separately."""
        return self.operation.convolves

    @functools.cached_property
    def rows(self) -> LayerRows:
        """The row maps: which row waits for which."""
        rows = self.operation.rows(self.input, self.output)
        return rows.last_first() if self.last_first else rows

    @functools.cached_property
    def engine_view(self) -> EngineView:
        """The layer's dimensions as engines and buffers see them."""
        return self.operation.engine_view(self.input, self.output)

    @property
    def eb_rows(self) -> int:
        """The rows that EB goes over."""
        view = self.engine_view
        return view.out_rows if self.rows.by_outputs else view.in_rows

    @functools.cached_property
    def takes(self) -> tuple[Tensor, ...]:
        """All tensors that arrive at the layer, in the order of their numbers."""
        passing = {tensor.number: tensor for tensor in (self.reads, *self.bypass)}
        return tuple(passing[number] for number in sorted(passing))

    @property
    def needs_errors(self) -> bool:
        """Whether the errors of its inputs are needed; those of images are not."""
        return self.reads.needs_errors

    @property
    def has_eb(self) -> bool:
        """Whether it has EB: for the errors of its inputs, or, if it is recurrent, of its own
        state.
        """
        return self.needs_errors or (self.operation.recurs and not self.frozen)

    @functools.cached_property
    def reads_again(self) -> bool:
        """Whether `reads` is needed again after the layer worked on it."""
        return self.reads in self.bypass

    @functools.cached_property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """(oc, ic, kh, kw)"""
        return self.operation.weight_shape(self.input, self.output)

    @property
    def weights(self) -> int:
        """Number of weights."""
        return math.prod(self.weight_shape)

    @functools.cached_property
    def parameters(self) -> int:
        """Number of weights, biases and parameters of its SFU."""
        learnt = sum(step.operation.parameters(step.output) for step in self.sfu)
        return self.weights + self.bias * self.channels + learnt

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one sample's forward propagation; PG, if it has one, takes as
        many.
        """
        return self._macs(self.operation.taps(self.input))

    @property
    def eb_macs(self) -> int:
        """Multiply-accumulates of one sample's EB; of recurrent layers whose inputs need no errors,
        those of states.
        """
        return self._macs(self.operation.eb_taps(self.input, with_inputs=self.needs_errors))

    @property
    def rounds_within(self) -> bool:
        """Whether its slices round numbers of their own: operands within attention and steps, or
        errors of logits.
        """
        return self.operation.recurs or not self.has_weights or self.vocabulary_parallel

    @property
    def has_weights(self) -> bool:
        """Whether it has weights."""
        return self.operation.has_pg

    @property
    def has_pg(self) -> bool:
        """Whether it has PG: weights that are not frozen."""
        return self.has_weights and not self.frozen

    @property
    def learns(self) -> bool:
        """Whether a run changes parameters of it."""
        return self.parameters > 0 and not self.frozen

    @property
    def pg_macs(self) -> int:
        """Multiply-accumulates of one sample's PG: as many as FP's, or none."""
        return self.macs if self.has_pg else 0

    @property
    def training_macs(self) -> int:
        """Multiply-accumulates of one sample's FP, EB and PG, of those that it has."""
        return self.macs + (self.eb_macs if self.has_eb else 0) + self.pg_macs

    @property
    def operations(self) -> int:
        """Operations of one sample's training as FPDeep counts them: also errors of what needs
        none, unless frozen.
        """
        if self.frozen:
            return 2 * self.training_macs
        return 2 * (self.macs + self._macs(self.operation.eb_taps(self.input)) + self.pg_macs)

    def _macs(self, taps: int) -> int:
        _, rows, columns = self.output
        return self.operation.pieces(self.output) * taps * math.prod(self.kernel) * rows * columns


@dataclasses.dataclass(frozen=True)
class Network(Figures):
    """A network with all shapes worked out; `start` is the rule for initial weights, `text` the
    description.

    `note` is one line that the user should see about the file that it comes from, or empty.
    """

    name: str
    input: Shape
    start: Start
    layers: tuple[Layer, ...]
    text: str = dataclasses.field(default="", repr=False, compare=False)
    note: str = dataclasses.field(default="", repr=False, compare=False)
    loss: str = "softmax"
    """The operation that closes it, or another loss that a run has in its place."""
    channels_first: tuple[str, ...] = ()
    """Which of "inputs" and "results" stand in arrays as (N, channels, steps), as those of PyTorch's
    Conv1d do, where they are sequences; else as (N, steps, channels).
    """
    corner: Pair = (0, 0)
    """Rows and columns of zeros before the first of an image, where `zeros` stand before all layers."""

    def to_dict(self) -> dict[str, Any]:
        """Return the description, which `emuchain.load_network` takes."""
        from ..common import read_description  # it loads pydantic, which other ranks do without

        return read_description(self.text)

    def __post_init__(self) -> None:
        check_names("network", (self.name,))
        check_names(f"network {self.name}: layer", (layer.name for layer in self.layers))

    @property
    def classes(self) -> int:
        """Number of outputs."""
        return self.layers[-1].feeds[0]

    @property
    def has_map_results(self) -> bool:
        """Whether its results are maps, of pixels, and no row or sequence."""
        _, rows, columns = self.layers[-1].feeds
        return columns > 1 or (rows > 1 and not self.takes_sequence and not self.last_first)

    @property
    def ends_in_sigmoid(self) -> bool:
        """Whether the outputs are those of a sigmoid, and so probabilities."""
        return bool(last := self.layers[-1].sfu) and last[-1].operation.type == "sigmoid"

    @property
    def entry(self) -> Shape:
        """(channels, rows, columns) of what the first layer takes: the input, with zeros around it,
        or the sequence that it becomes.
        """
        return self.layers[0].input

    @property
    def takes_sequence(self) -> bool:
        """Whether the input is a sequence: several rows, the time steps, of one column."""
        return self.input[1] > 1 and self.input[2] == 1

    @functools.cached_property
    def takes_symbols(self) -> bool:
        """Whether the input is the numbers of symbols, which embeddings look up."""
        return self.layers[0].operation.looks_up

    @property
    def sample_noun(self) -> str:
        """What a sample is called: "image", or "sample" of a text and of other sequences."""
        return "sample" if self.takes_sequence else "image"

    @property
    def epoch_images(self) -> int | None:
        """Training samples of the data set that has such an input: MNIST, CIFAR or ImageNet; None
        of any other.
        """
        channels, rows, columns = self.input
        if (channels, rows, columns) == (1, 28, 28):
            return 60_000
        if (channels, rows, columns) == (3, 32, 32):
            return 50_000
        if channels == 3 and rows == columns >= 192 and self.classes == 1000:
            return IMAGENET_IMAGES
        return None

    @property
    def result_steps(self) -> int:
        """Number of time steps, or pixels, that have results of their own; 1 where the network has
        one result.
        """
        _, rows, columns = self.layers[-1].feeds
        return rows * columns

    @property
    def last_first(self) -> bool:
        """Whether errors go back from the last row on, because a layer is recurrent or looks
        back.
        """
        return self.layers[0].last_first

    @property
    def attends(self) -> bool:
        """Whether it has attention: a layer that looks back at rows without taking one after the
        other.
        """
        return any(
            layer.operation.looks_back and not layer.operation.recurs for layer in self.layers
        )

    def with_rows_at_once(self, rows: int) -> Network:
        """Return the network with this `Layer.rows_at_once` where rows are of one pixel, if it has
        attention.

        Such layers have little work for each weight. Steps of a recurrent layer cannot wait for one
        another, and a look-up reads nothing that two rows share.
        """
        if not self.attends:
            return self

        def with_blocks(layer: Layer) -> Layer:
            alone = layer.operation.recurs or layer.operation.looks_up
            of_pixels = layer.input[2] == 1 and layer.kernel == (1, 1)
            return dataclasses.replace(layer, rows_at_once=rows if of_pixels and not alone else 1)

        return dataclasses.replace(self, layers=tuple(map(with_blocks, self.layers)))

    @functools.cached_property
    def recurs(self) -> bool:
        """Whether a layer is recurrent."""
        return any(layer.operation.recurs for layer in self.layers)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The results of all operations, in the description's order."""
        tensors = []
        for layer in self.layers:
            tensors += [layer.makes, *(step.makes for step in layer.sfu)]
        return tuple(tensors)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one sample's forward propagation."""
        return sum(layer.macs for layer in self.layers)

    @property
    def training_macs(self) -> int:
        """Multiply-accumulates of one sample's training pass."""
        return sum(layer.training_macs for layer in self.layers)

    @functools.cached_property
    def parameters(self) -> int:
        """Number of weights, biases and parameters of normalisations; weights that layers share
        count once.
        """
        shared = sum(head.weights for head in self.heads)
        return sum(layer.parameters for layer in self.layers) - shared

    @property
    def heads(self) -> tuple[Layer, ...]:
        """Layers that have the weights of an embedding."""
        return tuple(layer for layer in self.layers if layer.tied is not None)

    def __repr__(self) -> str:
        return (
            f"<Network {self.name}: {plural(len(self.layers), 'layer')}, {self.macs / 1e6:.1f}"
            f" MMAC, {self.parameters / 1e6:.2f} M parameters>"
        )

    def _repr_html_(self) -> str:
        rows = [
            [
                layer.name,
                "x".join(map(str, layer.input)),
                "x".join(map(str, layer.feeds)),
                f"{layer.macs / 1e6:.1f}",
                f"{layer.parameters / 1e6:.3f}",
            ]
            for layer in self.layers
        ]
        all_layers = ["all", "", "", f"{self.macs / 1e6:.1f}", f"{self.parameters / 1e6:.3f}"]
        return html_table(
            f"Network {self.name}",
            [*rows, all_layers],
            ["layer", "input", "feeds", "MMAC", "M parameters"],
        )
