from .attention import Attention, backward, forward, warm
from .operands import Operand
from .summed import SummedAttention, SumRounding, drawn, warm_summed

__all__ = [
    "Attention",
    "Operand",
    "SumRounding",
    "SummedAttention",
    "backward",
    "drawn",
    "forward",
    "warm",
    "warm_summed",
]
