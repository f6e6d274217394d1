"""Norms of each sample by itself, over all rows and columns: group normalisation, of the channels
of a group, and global response normalisation, of each channel beside all.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ....kernels.layers.group_norm import (
    group_norm_error,
    group_norm_forward,
    group_norm_gradient,
)
from ....kernels.layers.response_norm import response_norm_error, response_norm_forward
from ...common import Channels, PositiveFinite
from ..onnx_nodes import Export, Form
from ..operation import Arithmetic, SfuOperation, SfuRows, SfuStep
from ..shape import Shape, shown
from ..unit import Data, Inputs, Made, Site, State, Training, Unit, Weights

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


class _OfWholeMaps(SfuOperation):
    """The base of norms whose sums are over whole maps: a row of the result waits for the last row,
    and so does a row of errors.
    """

    keeps_map = True

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0]

    def rows(self, shape: Shape, made: Shape) -> SfuRows:
        """See `SfuOperation`."""
        last = np.full(shape[1], shape[1] - 1)
        return SfuRows(last, last)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupNorm(_OfWholeMaps):
    """A group of channels less their mean over a sample, over their deviation, scaled and shifted.

    In as many `groups` as channels it is instance normalisation (Wu and He, 2018).
    """

    groups: Channels
    epsilon: PositiveFinite = 1e-5

    type = "group-norm"
    torch_names: ClassVar[Mapping[str, str]] = {"scale": "weight", "shift": "bias"}
    of_value = Arithmetic(10)  # two sums, normal, result; back: two sums, dx by two, two gradients
    onnx = ("GroupNormalization", "InstanceNormalization")

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        if inputs[0][0] % self.groups:
            raise ValueError(
                f"`groups` = {self.groups} does not divide {inputs[0][0]} channels into equal groups"
            )
        return super().output(inputs)

    def arithmetic(self, shape: Shape, made: Shape) -> Arithmetic:
        """See `SfuOperation`; with a root and a division for each group."""
        return super().arithmetic(shape, made)._replace(divisions=2 * self.groups)

    def parameters(self, made: Shape) -> int:
        """See `SfuOperation`; each channel has a scale and a shift."""
        return 2 * made[0]

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        return nn.GroupNorm(self.groups, shape[0], self.epsilon)

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`.

        Raises:
            InputError: it has a scale for each group, as of version 18, or does not take maps.
        """
        over = len(walk.axes_of(walk.take(node))) - 2
        value, scale = walk.maps(node, over=over), walk.weight(node)
        walk.weight(node, 2)
        channels = math.prod(scale)
        groups, shape = node.integer("num_groups", channels), walk.shape(value)
        if channels == groups and (shape is None or shape[0] != groups):
            raise node.refusal("has a scale for each group; one for each channel is needed")
        there = (shape or ())[: 1 + over]
        if (whole := node.integers("whole", there)) != there:
            raise node.refusal(f"makes maps of {shown(whole)} of others; {shown(there)} are needed")
        walk.expect(node, value, channels=channels)
        keys = {"groups": groups, "epsilon": node.number("epsilon", 1e-5)}
        arrays = dict(zip(("scale", "shift"), node.inputs[1:], strict=False))
        return walk.step(node, cls, keys, value, like=value, arrays=arrays)

    def to_onnx(self, out: Export) -> None:
        """See `Operation`; ONNX has it for groups since version 21, so it is spelled out as PyTorch
        does.
        """
        out.expect(Form.MAPS)
        nodes, name, channels = out.nodes, out.name, out.reads[0].shape[0]
        if self.groups == channels:
            arrays = [out.weight("scale"), out.weight("shift")]
            out.write("InstanceNormalization", *arrays, epsilon=self.epsilon)
            return
        merged = nodes.numbers(f"{name}.merged", 0, self.groups, -1)
        apart = nodes.add("Reshape", [out.x, merged], f"{name}/groups")
        ones = nodes.array(f"{name}.ones", np.ones(self.groups, np.float32))
        zeros = nodes.array(f"{name}.zeros", np.zeros(self.groups, np.float32))
        normal = nodes.add(
            "InstanceNormalization", [apart, ones, zeros], f"{name}/normal", epsilon=self.epsilon
        )
        whole = nodes.add("Shape", [out.x], f"{name}/whole")
        maps = nodes.add("Reshape", [normal, whole], f"{name}/maps")
        scale, shift = (
            out.weight(key, lambda own: own.reshape(channels, 1, 1)) for key in ("scale", "shift")
        )
        scaled = nodes.add("Mul", [maps, scale], f"{name}/scaled", name)
        nodes.add("Add", [scaled, shift], out.result)
        nodes.name(out.makes, out.result, Form.MAPS)

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return GroupNormUnit(self, step.output[0], site)


class GroupNormUnit(Unit):
    """Group normalisation; it keeps its inputs, and two numbers for each group of a sample."""

    def __init__(self, norm: GroupNorm, channels: int, site: Site) -> None:
        super().__init__(site)
        self._groups, self._epsilon = norm.groups, norm.epsilon
        self.learns = {
            "scale": np.ones(channels, np.float32),
            "shift": np.zeros(channels, np.float32),
        }

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        y, statistics = self.arena.take(x.shape), self.arena.take((len(x), self._groups, 2))
        arrays = weights["scale"], weights["shift"]
        group_norm_forward(x, y, statistics, *arrays, epsilon=self._epsilon)
        return y, (x, statistics)

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        x, statistics = state
        dx = self.arena.take(dz.shape)
        group_norm_error(x, statistics, weights["scale"], dz, dx)
        return (dx,)

    def kept(self, state: State, dz: Data) -> State:
        """See `Unit`."""
        return *state, dz

    def gradient(self, kept: State, sums: Weights, *, fresh: bool) -> None:
        """See `Unit`."""
        x, statistics, dz = kept
        group_norm_gradient(x, statistics, dz, sums["scale"], sums["shift"], fresh=fresh)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlobalResponseNorm(_OfWholeMaps):
    """Each channel times its length over all pixels, beside the mean length of all channels.

    It is the norm of ConvNeXt V2 (Woo et al., 2023, equations 1 to 3). Its factors and terms of
    channels, and the shortcut around it, are `scale`, `shift` and `add`.
    """

    epsilon: PositiveFinite = 1e-6

    type = "global-response-norm"
    of_value = Arithmetic(5)  # sum of squares, product; back: sum of x dy, dx by two
    onnx = ("ReduceL2",)

    def arithmetic(self, shape: Shape, made: Shape) -> Arithmetic:
        """See `SfuOperation`; with a root and a division for each channel, and a division for
        all.
        """
        return super().arithmetic(shape, made)._replace(divisions=2 * shape[0] + 1)

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        import torch

        epsilon = self.epsilon

        class GlobalResponseNorm(nn.Module):
            def forward(self, x: Any) -> Any:
                length = torch.linalg.vector_norm(x, dim=(2, 3), keepdim=True)
                return x * (length / (length.mean(1, keepdim=True) + epsilon))

        return GlobalResponseNorm()

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; the node is the length, with what `with_map_norms` finds behind it.

        Raises:
            InputError: it is another length, or over other axes.
        """
        value, over, mean_of = walk.take(node), node.integers("over", ()), node.integers("of", ())
        axes = walk.axes_of(value)
        places = [tuple(place % len(axes) for place in own) for own in (over, mean_of)]
        named = [{axes[place] for place in own} for own in places]
        if {*axes} != {"samples"} | named[0] | named[1] or named[1] != {"channels"}:
            raise node.refusal(
                "computes lengths; only those of channels over rows and columns, over their mean,"
                " and times the channels, as in global response normalisation, are supported"
            )
        return walk.step(node, cls, {"epsilon": node.number("epsilon", 0.0)}, value, like=value)

    def to_onnx(self, out: Export) -> None:
        """See `Operation`; ONNX has no word for it, so it is spelled out."""
        out.expect(Form.MAPS, Form.STEPS)
        nodes, name, form = out.nodes, out.name, out.form
        over, channels = ([2, 3], [1]) if form is Form.MAPS else ([1], [2])
        length = nodes.add("ReduceL2", [out.x], f"{name}/length", name, axes=over)
        mean = nodes.add("ReduceMean", [length], f"{name}/mean", axes=channels)
        total = nodes.add("Add", [mean, out.number("epsilon", self.epsilon)], f"{name}/total")
        share = nodes.add("Div", [length, total], f"{name}/share")
        out.nodes.add("Mul", [out.x, share], out.result)
        nodes.name(out.makes, out.result, form)

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return GlobalResponseNormUnit(self, site)


class GlobalResponseNormUnit(Unit):
    """Global response normalisation; it keeps its inputs, and a length for each channel."""

    def __init__(self, norm: GlobalResponseNorm, site: Site) -> None:
        super().__init__(site)
        self._epsilon = norm.epsilon

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        y, lengths = self.arena.take(x.shape), self.arena.take((len(x), x.shape[3]))
        response_norm_forward(x, y, lengths, epsilon=self._epsilon)
        return y, (x, lengths)

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        x, lengths = state
        dx = self.arena.take(dz.shape)
        response_norm_error(x, lengths, dz, dx, epsilon=self._epsilon)
        return (dx,)
