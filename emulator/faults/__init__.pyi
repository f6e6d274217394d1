from .delay import Delay, Loss, check_time, slowed_ps
from .description import FaultsDescription
from .fault import BoardFault, Faults, FlipFault, FlipTarget, LinkFault, Span, exact
from .flips import Flipper
from .load import described_faults, load_faults
from .paced import PacedResource
from .streams import Purpose, stream

__all__ = [
    "BoardFault",
    "Delay",
    "Faults",
    "FaultsDescription",
    "FlipFault",
    "FlipTarget",
    "Flipper",
    "LinkFault",
    "Loss",
    "PacedResource",
    "Purpose",
    "Span",
    "check_time",
    "described_faults",
    "exact",
    "load_faults",
    "slowed_ps",
    "stream",
]
