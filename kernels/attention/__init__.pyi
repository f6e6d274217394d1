from .attention import Attention, backward, forward, warm
from .operands import Operand
from .summed import SummedAttention, SumRounding, drawn, warm_summed
from .terms import alibi_slopes, sloped

__all__ = [
    "Attention",
    "Operand",
    "SumRounding",
    "SummedAttention",
    "alibi_slopes",
    "backward",
    "drawn",
    "forward",
    "sloped",
    "warm",
    "warm_summed",
]
