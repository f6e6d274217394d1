from .description import FaultsDescription, described_faults, load_faults
from .fault import (
    NO_FAULTS,
    BoardDeath,
    BoardFault,
    Faults,
    FlipFault,
    FlipTarget,
    LinkFault,
    Span,
    exact,
    joined_links,
    left_alive,
)
from .flips import Flipper, LineFormat, Purpose, stream
from .paced import Begun, Delay, Loss, PacedResource, check_time, slowed_ps

__all__ = [
    "NO_FAULTS",
    "Begun",
    "BoardDeath",
    "BoardFault",
    "Delay",
    "Faults",
    "FaultsDescription",
    "FlipFault",
    "FlipTarget",
    "Flipper",
    "LineFormat",
    "LinkFault",
    "Loss",
    "PacedResource",
    "Purpose",
    "Span",
    "check_time",
    "described_faults",
    "exact",
    "joined_links",
    "left_alive",
    "load_faults",
    "slowed_ps",
    "stream",
]
