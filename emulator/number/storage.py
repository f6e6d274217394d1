"""The formats of a board's memories."""

from __future__ import annotations

import dataclasses

from ...kernels.number import FP32, Lines, NumberFormat
from .sharing import Sharing


@dataclasses.dataclass(frozen=True)
class Storage:
    """The formats of a board's memories: of maps, of partial sums, and of each array that a
    parameter takes.

    Of a weight's `arrays`, engines read the first; the second is its gradient; then come a master
    copy, if updates change one (`has_copies`), what they remember, and what error feedback keeps. A
    bias, and what an SFU learns, take `bias_arrays` in the format of `biases`. Of each array a
    board has one of as many `shares` as stand in its place; without them, it has all.
    """

    activations: NumberFormat = FP32
    """Of maps that a layer reads."""
    errors: NumberFormat = FP32
    sums: NumberFormat = FP32
    arrays: tuple[NumberFormat, ...] = (FP32, FP32)
    bias_arrays: int = 2
    biases: NumberFormat = FP32
    has_copies: bool = False
    shares: tuple[int, ...] = ()
    dot: int = 0
    """Products of a block that is summed exactly: blocks of weights run along what FP sums, and EB
    has a copy of its own, unless they are squares.
    """
    has_scales: bool = False
    """Whether a layer's weights have a scale that its own boards know."""
    made: NumberFormat = FP32
    """Of activations that a layer makes, states among them."""
    layers: tuple[Storage, ...] = ()
    """Those of `Precision.layers`."""

    @classmethod
    def all_in(cls, number: NumberFormat, copies: int = 2) -> Storage:
        """Return the storage of values that are all in one format, a parameter in `copies`
        arrays.
        """
        return cls(number, number, number, (number,) * copies, copies, number, made=number)

    def of_layer(self, formats: int, read: int) -> Storage:
        """Return the storage of a layer by the numbers of its formats, and of those of what it
        reads (`Precision.of`); that of a layer is its own.
        """
        if not self.layers:
            return self
        own, others = (self, *self.layers)[formats], (self, *self.layers)[read]
        return dataclasses.replace(own, activations=others.made, layers=())

    def with_residuals(self, count: int) -> Storage:
        """Return the storage with `count` more arrays of each parameter in fp32, in which gradients
        are exchanged.
        """
        arrays = (*self.arrays, *(FP32,) * count)
        shares = (*self.shares, *(1,) * count) if self.shares else ()
        layers = tuple(own.with_residuals(count) for own in self.layers)
        bias_arrays = self.bias_arrays + count
        return dataclasses.replace(
            self, arrays=arrays, bias_arrays=bias_arrays, shares=shares, layers=layers
        )

    def shared_out(self, sharing: Sharing) -> Storage:
        """Return the storage of one of the replicas that share arrays out."""
        if sharing.states == 1:
            return self
        others = (sharing.states,) * (len(self.arrays) - 2)
        layers = tuple(own.shared_out(sharing) for own in self.layers)
        return dataclasses.replace(self, shares=(1, sharing.gradients, *others), layers=layers)

    @property
    def at_rest(self) -> Storage:
        """The storage of parameters that are frozen: their values alone."""
        return dataclasses.replace(
            self, arrays=self.arrays[:1], bias_arrays=1, has_copies=False, shares=()
        )

    @property
    def made_by(self) -> tuple[NumberFormat, ...]:
        """The formats of maps by the numbers of those of the layers that make them."""
        return self.made, *(own.made for own in self.layers)

    @property
    def kept(self) -> tuple[tuple[NumberFormat, int], ...]:
        """The format of each array of a weight, and how many shares it has."""
        return tuple(zip(self.arrays, self.shares or (1,) * len(self.arrays), strict=True))

    @property
    def bias_shares(self) -> tuple[int, ...]:
        """How many shares each array of a bias has, which needs no master copy."""
        # A bias has the arrays of a weight but for a master copy, as it has one format.
        others = (*self.shares[:2], *self.shares[2 + self.has_copies :])
        return others or (1,) * self.bias_arrays

    @property
    def weights(self) -> NumberFormat:
        """The format of the weights that engines read, and that travel."""
        return self.arrays[0]

    @property
    def gradients(self) -> NumberFormat:
        """The format of the sums of their gradients."""
        return self.arrays[1]

    @property
    def master(self) -> NumberFormat:
        """The format of the weights that updates change."""
        return self.arrays[2] if self.has_copies else self.arrays[0]

    @property
    def turns(self) -> bool:
        """Whether EB has weights of its own, in blocks of what it sums."""
        return self.dot > 0 and self.weights.block > 0 and not self.has_squares

    @property
    def has_squares(self) -> bool:
        """Whether blocks of weights lie along what FP sums and what EB sums."""
        return self.weights.lines > 1

    @property
    def lies_across(self) -> bool:
        """Whether blocks of weights lie across the input channels along which layers are cut."""
        return self.dot > 0 and any(number.block for number in self.arrays)

    @property
    def states(self) -> tuple[NumberFormat, ...]:
        """The formats of what is kept of a weight beside itself, its gradient and its master
        copy.
        """
        # weights | gradients | master, if has_copies | states, and residuals of error feedback
        return self.arrays[2 + self.has_copies :]

    def weight_bytes(self, weights: Lines) -> int:
        """Return the bytes of some weights, with all that is kept of them."""
        return sum(weights.share(shares).bytes_in(number) for number, shares in self.kept)

    def bias_bytes(self, count: int) -> int:
        """Return the bytes of `count` values as of a bias, with all that is kept of them."""
        return sum(self.biases.bytes_of(-(-count // shares)) for shares in self.bias_shares)
