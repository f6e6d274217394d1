"""What a graph spells out by several nodes, as one node each, before it is walked through.

`arithmetic` knows activations and norms of rows, `map_operators` norms and pools of whole maps,
`products` those by Einstein's convention and of patches, and `padding` positions that count symbols.
"""

from .arithmetic import with_operators
from .map_operators import with_map_operators
from .padding import note_of_padding, with_places
from .products import with_products

__all__ = [
    "note_of_padding",
    "with_map_operators",
    "with_operators",
    "with_places",
    "with_products",
]
