"""The numerics of a device's slices: what all have in common, and each kind of layer.

    SliceNumerics        maps in and out, the SFU, the ends of the chain
      ConvSlice          convolutions, fully connected layers, embeddings
        DotSlice         those whose products are summed in blocks, exactly
        VocabularySlice  a classifier that computes its part of the loss, with either's sums
      AttentionSlice     heads, without weights
      RecurrentSlice     LSTM and GRU, over all time steps

Exports are listed in `__init__.pyi`; each name is imported at its first use, since kernels of kinds
that a run does not have need not be loaded.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
