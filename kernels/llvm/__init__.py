"""LLVM IR from which compiled kernels are built: vectors, fused multiply-adds, copies at plain addresses."""

from ..current_folder import away_from

with away_from(".numba_config.yaml"):  # all of these import Numba
    from .emit import (
        FLOAT,
        INDEX,
        INDEX_BYTES,
        INT,
        LINE_BYTES,
        address,
        bits_to_mask,
        broadcast,
        entry_of,
        fence,
        first_lanes,
        index,
        lane_bits,
        masked_load,
        masked_store,
        numbers_only,
        prefetch,
        shuffle,
        vector,
    )
    from .fma import emit_fma, fma
    from .memory import clear, copy, read_index
    from .peak import FLOP_OF_ROUND, multiply_add
    from .reading import read

__all__ = [
    "FLOAT",
    "FLOP_OF_ROUND",
    "INDEX",
    "INDEX_BYTES",
    "INT",
    "LINE_BYTES",
    "address",
    "bits_to_mask",
    "broadcast",
    "clear",
    "copy",
    "emit_fma",
    "entry_of",
    "fence",
    "first_lanes",
    "fma",
    "index",
    "lane_bits",
    "masked_load",
    "masked_store",
    "multiply_add",
    "numbers_only",
    "prefetch",
    "read",
    "read_index",
    "shuffle",
    "vector",
]
