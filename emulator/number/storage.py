"""What boards store of a run, in which formats."""

from __future__ import annotations

import dataclasses

from ...kernels.number import FP32, Lines, NumberFormat


@dataclasses.dataclass(frozen=True)
class Storage:
    """The formats of a board's memories: of maps, of partial sums, and of each array that a parameter takes.

    Of a weight's `arrays`, engines read the first; the second is its gradient; then come a master copy, if updates
    change one (`has_copies`), what they remember, and what error feedback keeps. A bias, and what an SFU learns, take
    `bias_arrays` in the format of `biases`.
    """

    activations: NumberFormat = FP32
    errors: NumberFormat = FP32
    sums: NumberFormat = FP32
    arrays: tuple[NumberFormat, ...] = (FP32, FP32)
    bias_arrays: int = 2
    biases: NumberFormat = FP32
    has_copies: bool = False

    @classmethod
    def all_in(cls, number: NumberFormat, copies: int = 2) -> Storage:
        """Return the storage of values that are all in one format, a parameter in `copies` arrays."""
        return cls(number, number, number, (number,) * copies, copies, number)

    def with_residuals(self, count: int) -> Storage:
        """Return the storage with `count` more arrays of each parameter in fp32, in which gradients are exchanged."""
        arrays = (*self.arrays, *(FP32,) * count)
        return dataclasses.replace(self, arrays=arrays, bias_arrays=self.bias_arrays + count)

    @property
    def at_rest(self) -> Storage:
        """The storage of parameters that are frozen: their values alone."""
        return dataclasses.replace(self, arrays=self.arrays[:1], bias_arrays=1, has_copies=False)

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
    def states(self) -> tuple[NumberFormat, ...]:
        """The formats of what is kept of a weight beside itself, its gradient and its master copy."""
        return self.arrays[2 + self.has_copies :]

    def weight_bytes(self, weights: Lines) -> int:
        """Return the bytes of some weights, with all that is kept of them."""
        return sum(map(weights.bytes_in, self.arrays))
