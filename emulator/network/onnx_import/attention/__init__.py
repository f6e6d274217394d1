"""Attention in a graph: products of queries and keys, what is added to them, softmax, and products
with values (`attentions`), on their way through views (`heads`).

`turned` follows rotary positions, `terms` what scores have beside products, and `merged` layers that
make queries, keys and values one by one.
"""

from .attentions import Attentions
from .merged import note_of_biases

__all__ = ["Attentions", "note_of_biases"]
