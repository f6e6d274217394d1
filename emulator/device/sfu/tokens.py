"""Units of transformers: normalisation of rows, positions, and tokens of maps."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ....kernels.layers.element_wise import add_bias_gradient
from ....kernels.layers.row_norm import layer_norm_forward, rms_norm_forward, row_norm_error, row_norm_gradient
from ...network import SfuStep
from ...network.operations.tokens import LayerNorm, Positions, RmsNorm, Tokens
from ...schedule import SampleSpan
from ..memories import NORMAL_DEVIATION, ActRam, Parameter
from .unit import Data, Site, State, Training, Unit


class LearningUnit(Unit):
    """A unit with parameters and no moving averages."""

    def __init__(self, step: SfuStep, site: Site, **first: Data) -> None:
        super().__init__(step, site)
        self._learnt = {name: Parameter(value, site.arena) for name, value in first.items()}
        self._kept = ActRam(site.arena)

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """See `Unit`."""
        return self._learnt


class _RowNormUnit(LearningUnit):
    """Normalisation of each pixel's channels; it keeps its inputs, and two numbers for each pixel."""

    def __init__(self, step: SfuStep, site: Site, **first: Data) -> None:
        super().__init__(step, site, scale=np.ones(step.output[0], np.float32), **first)
        assert isinstance(step.operation, (LayerNorm, RmsNorm))
        self._epsilon = step.operation.epsilon

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        [x] = xs
        y, statistics = self.arena.take(x.shape), self.arena.take((*x.shape[:3], 2))
        self._normalise(x, y, statistics, version)
        return y, (x, statistics)

    @abc.abstractmethod
    def _normalise(self, x: Data, y: Data, statistics: Data, version: int) -> None:
        """Write the result for x to y, and the two numbers of each pixel."""

    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        """See `Unit`."""
        x, statistics = state
        dx = self.arena.take(dz.shape)
        row_norm_error(x, statistics, self._learnt["scale"][version], dz, dx, centred="shift" in self._learnt)
        return (dx,)

    def keep(self, span: SampleSpan, state: State, dz: Data) -> None:
        """See `Unit`."""
        self._kept.put(span, *state, dz)

    def gradient(self, whole: SampleSpan) -> None:
        """See `Unit`."""
        x, statistics, dz = self._kept.read(whole)
        scale, shift = self._learnt["scale"], self._learnt.get("shift")
        fresh = scale.begins_sum()
        if shift is not None:
            shift.begins_sum()
        dshift = None if shift is None else shift.gradient
        row_norm_gradient(x, statistics, dz, scale.gradient, dshift, fresh=fresh)


class LayerNormUnit(_RowNormUnit):
    """Layer normalisation."""

    operation = LayerNorm

    def __init__(self, step: SfuStep, site: Site) -> None:
        super().__init__(step, site, shift=np.zeros(step.output[0], np.float32))

    def _normalise(self, x: Data, y: Data, statistics: Data, version: int) -> None:
        scale, shift = self._learnt["scale"][version], self._learnt["shift"][version]
        layer_norm_forward(x, y, statistics, scale, shift, epsilon=self._epsilon)


class RmsNormUnit(_RowNormUnit):
    """RMS normalisation."""

    operation = RmsNorm

    def _normalise(self, x: Data, y: Data, statistics: Data, version: int) -> None:
        rms_norm_forward(x, y, statistics, self._learnt["scale"][version], epsilon=self._epsilon)


class PositionsUnit(LearningUnit):
    """A value for each row and channel, in one row: those of row 0, then of row 1, and so on."""

    operation = Positions

    def __init__(self, step: SfuStep, site: Site) -> None:
        channels, rows, _ = step.output
        super().__init__(step, site, positions=_drawn(site, rows * channels))

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        [x] = xs
        y = self.arena.take(x.shape)
        np.add(x, self._learnt["positions"][version].reshape(x.shape[1:]), out=y)
        return y, ()

    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        """See `Unit`."""
        return (dz,)

    def keep(self, span: SampleSpan, state: State, dz: Data) -> None:
        """See `Unit`."""
        self._kept.put(span, dz)

    def gradient(self, whole: SampleSpan) -> None:
        """See `Unit`."""
        [dz] = self._kept.read(whole)
        positions = self._learnt["positions"]
        rows = np.ascontiguousarray(dz).reshape(len(dz), 1, 1, -1)
        add_bias_gradient(positions.gradient, rows, fresh=positions.begins_sum())


class TokensUnit(LearningUnit):
    """Pixels as rows, and maybe a class token before them."""

    operation = Tokens

    def __init__(self, step: SfuStep, site: Site) -> None:
        assert isinstance(step.operation, Tokens)
        first = {"class_token": _drawn(site, step.output[0])} if step.operation.class_token else {}
        super().__init__(step, site, **first)
        self._before = len(first)
        self._shape = step.input

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        [x] = xs
        channels, rows, columns = self._shape
        y = self.arena.take((len(x), rows * columns + self._before, 1, channels))
        y[:, self._before :] = x.reshape(len(x), rows * columns, 1, channels)
        if self._before:
            y[:, 0, 0] = self._learnt["class_token"][version]
        return y, ()

    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        """See `Unit`."""
        channels, rows, columns = self._shape
        dx = self.arena.take((len(dz), rows, columns, channels))
        dx[...] = dz[:, self._before :].reshape(dx.shape)
        return (dx,)

    def keep(self, span: SampleSpan, state: State, dz: Data) -> None:
        """See `Unit`."""
        if self._before:
            self._kept.put(span, np.ascontiguousarray(dz[:, :1]))

    def gradient(self, whole: SampleSpan) -> None:
        """See `Unit`."""
        if self._before:
            [dz] = self._kept.read(whole)
            token = self._learnt["class_token"]
            add_bias_gradient(token.gradient, dz, fresh=token.begins_sum())


def _drawn(site: Site, count: int) -> NDArray[np.float32]:
    """Return first values, normal, by a stream that no channel of the layer's weights has."""
    stream = np.random.Generator(np.random.Philox(key=[site.seed, site.layer << 32 | 0xFFFFFFFF - site.place]))
    return (stream.standard_normal(count) * NORMAL_DEVIATION).astype(np.float32)
