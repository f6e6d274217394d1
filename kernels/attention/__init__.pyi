from .attention import Attention, backward, forward, warm
from .operands import Operand, Scale, largest_finite
from .summed import SummedAttention, SumRounding, drawn, warm_summed
from .terms import (
    add_by_bucket,
    alibi_slopes,
    bucket_numbers,
    by_distance,
    sloped,
    table_places,
    table_rows,
)

__all__ = [
    "Attention",
    "Operand",
    "Scale",
    "SumRounding",
    "SummedAttention",
    "add_by_bucket",
    "alibi_slopes",
    "backward",
    "bucket_numbers",
    "by_distance",
    "drawn",
    "forward",
    "largest_finite",
    "sloped",
    "table_places",
    "table_rows",
    "warm",
    "warm_summed",
]
