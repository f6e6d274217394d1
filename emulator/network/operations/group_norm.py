"""Group normalisation: each sample by itself, the channels of a group over all rows and columns."""

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
from ...common import Channels, PositiveFinite
from ..onnx_nodes import Export, Form
from ..operation import Arithmetic, SfuOperation, SfuRows, SfuStep
from ..shape import Shape, shown
from ..unit import Data, Inputs, Made, Site, State, Training, Unit, Weights

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupNorm(SfuOperation):
    """A group of channels less their mean over a sample, over their deviation, scaled and shifted.

    In as many `groups` as channels it is instance normalisation (Wu and He, 2018). A row of the
    result waits for the last row, and so does a row of errors.
    """

    groups: Channels
    epsilon: PositiveFinite = 1e-5

    keeps_map = True
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
        return inputs[0]

    def arithmetic(self, shape: Shape, made: Shape) -> Arithmetic:
        """See `SfuOperation`; with a root and a division for each group."""
        return super().arithmetic(shape, made)._replace(divisions=2 * self.groups)

    def parameters(self, made: Shape) -> int:
        """See `SfuOperation`; each channel has a scale and a shift."""
        return 2 * made[0]

    def rows(self, shape: Shape, made: Shape) -> SfuRows:
        """See `SfuOperation`; sums are over whole maps."""
        last = np.full(shape[1], shape[1] - 1)
        return SfuRows(last, last)

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
