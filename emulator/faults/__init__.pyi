from .begun import Begun
from .death import BoardDeath, joined_links, left_alive
from .delay import Delay, Loss, check_time, slowed_ps
from .description import FaultsDescription
from .fault import BoardFault, Faults, FlipFault, FlipTarget, LinkFault, exact
from .flips import Flipper
from .load import NO_FAULTS, described_faults, load_faults
from .paced import PacedResource
from .span import Span
from .streams import Purpose, stream

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
