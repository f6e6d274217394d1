"""How the operands of a recurrent layer's products are rounded to a format: states, and errors of
gates' sums.

| operand | before it is multiplied by | rounded as |
|---|---|---|
| h of a step, which is also what the layer hands on | R, at the next step | `states` |
| o * tanh c with a projection; r * h where a GRU resets before the product | P; R for n | `inner` |
| errors of gates' sums | W, R, inputs and states | `errors` |
| errors of h with a projection | P, and o * tanh c | `inner_errors` |

Gates, cells, and all between are not rounded. Blocks run along units, of each gate by itself: as
PyTorch's arrays lie. In the GRU that is linear before reset, the errors of n are two operands: W's,
and times r, R's.

Of stochastic rounding, the word of a state is number t * units + unit of the sample, and that of an
error (t * LINES + line) * units + unit, from the draws' first element on; a line is a gate, or,
behind these, the errors of n times r. `units` are those of the whole layer.
"""

from __future__ import annotations

import dataclasses

from ..attention.operands import Narrow, Operand, whole

LINES = 4
"""Lines of errors of a step: of an LSTM's gates, or a GRU's and R's errors of n."""


@dataclasses.dataclass(frozen=True)
class Operands:
    """The roundings of a layer's operands; None leaves one as it is."""

    states: Operand | None = None
    inner: Operand | None = None
    errors: Operand | None = None
    inner_errors: Operand | None = None

    def of_forward(self, samples: int, steps: int, sizes: tuple[int, int]) -> tuple[Narrow, Narrow]:
        """Return `states` and `inner` as kernels take them; `sizes` are the numbers of each in a
        step of the whole layer.
        """
        return (
            _narrow(self.states, samples, steps, sizes[0]),
            _narrow(self.inner, samples, steps, sizes[1]),
        )

    def of_backward(
        self, samples: int, steps: int, sizes: tuple[int, int]
    ) -> tuple[Narrow, Narrow]:
        """Return `errors` and `inner_errors` as kernels take them; `sizes` are the units of the
        whole layer, and the outputs of its projection.
        """
        return (
            _narrow(self.errors, samples, steps, sizes[0], LINES),
            _narrow(self.inner_errors, samples, steps, sizes[1]),
        )


PLAIN = Operands()
"""Operands in fp32."""


def _narrow(operand: Operand | None, samples: int, steps: int, size: int, lines: int = 1) -> Narrow:
    if operand is None:
        return whole()
    return operand.of_lines(samples, steps * lines * size, size)
