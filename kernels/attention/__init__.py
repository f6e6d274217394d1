"""Attention by heads, forward and backward, with one fixed order of every sum, as FlashAttention
recomputes it.

Forward keeps the largest score and 1 / sum of each row and head (Dao et al., 2022, algorithm 2);
backward computes the scores again. Every product is added by one fused multiply-add, from +0, in
this order:

- scores, and the products of output errors and values: channels ascending
- the sum of the powers (by plain additions), outputs, errors of q, and D: keys ascending
- errors of k and v: queries *descending*

`softmax.py` has the lines between. A masked key has an exact zero, and sums that are zero are +0;
so no bit depends on how many masked keys are computed or left out, on how rows are cut into calls
and blocks, on which heads are computed together, or on the form of the micro-kernel. All this holds
for finite numbers.

Operands may be rounded to a format (`operands.py`). Sums may be in narrow formats, or of blocks
(`summed.py`). Exports are listed in `__init__.pyi`; each name is imported at its first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
