"""Cycles of a product of a matrix and a vector on an MVM unit (FARNN, section 5.1.3).

All PEs of a unit are fed the same vector of N values, one a cycle, and each sums one of H outputs. M PEs take H outputs
in rounds of N cycles. Where r outputs remain for the last round, floor(M/r) PEs share each of them, and each PE is fed
its part of the vector alone. Behind a single full round no more than two PEs share an output: so has the paper's only
example, 1,024 outputs on 768 PEs, which take 1,536 cycles, where floor(768/256) = 3 PEs would take 1,366.
"""

from __future__ import annotations


def mvm_cycles(outputs: int, inputs: int, pes: int) -> int:
    """Return the cycles of a product, with outputs of the last round split over idle PEs.

    A PE uses each of its weights once, so this is also the number of weights in the fullest PE.
    """
    rounds, rest = divmod(outputs, pes)
    if not rest:
        return inputs * rounds
    sharing = pes // rest
    return inputs * rounds + -(-inputs // (min(sharing, 2) if rounds == 1 else sharing))


def unsplit_cycles(outputs: int, inputs: int, pes: int) -> int:
    """Return the cycles of a product in which each output is summed by one PE."""
    return inputs * -(-outputs // pes)
