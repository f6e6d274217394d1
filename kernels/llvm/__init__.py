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
        of_blocks,
        prefetch,
        shuffle,
        vector,
    )
    from .fma import emit_fma, fma
    from .lanes import WIDTH, Lanes, Units, for_units, fused, integers
    from .memory import clear, copy, copy_rows, prefetch_line, read_index
    from .peak import FLOP_OF_ROUND, multiply_add
    from .reading import read
    from .tile import add_products, call_by_size, emit_sums, tile_function

__all__ = [
    "FLOAT",
    "FLOP_OF_ROUND",
    "INDEX",
    "INDEX_BYTES",
    "INT",
    "LINE_BYTES",
    "WIDTH",
    "Lanes",
    "Units",
    "add_products",
    "address",
    "bits_to_mask",
    "broadcast",
    "call_by_size",
    "clear",
    "copy",
    "copy_rows",
    "emit_fma",
    "emit_sums",
    "entry_of",
    "fence",
    "first_lanes",
    "fma",
    "for_units",
    "fused",
    "index",
    "integers",
    "lane_bits",
    "masked_load",
    "masked_store",
    "multiply_add",
    "numbers_only",
    "of_blocks",
    "prefetch",
    "prefetch_line",
    "read",
    "read_index",
    "shuffle",
    "tile_function",
    "vector",
]
