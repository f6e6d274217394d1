"""Exchange of gradients between replicas of a network (INCEPTIONN, section IV): ring, aggregator, and hierarchies."""

from ..interconnect import COMPRESSIBLE_TOS
from .aggregator import Aggregator, Report
from .broadcast import Above, Below, Broadcast, Outlet
from .gradient import Gradient
from .histogram import BINS, histogram
from .message import Parcel, ParcelFormat
from .nic import ORDINARY_TOS, Port, Traffic
from .ring import Ring

__all__ = [
    "BINS",
    "COMPRESSIBLE_TOS",
    "ORDINARY_TOS",
    "Above",
    "Aggregator",
    "Below",
    "Broadcast",
    "Gradient",
    "Outlet",
    "Parcel",
    "ParcelFormat",
    "Port",
    "Report",
    "Ring",
    "Traffic",
    "histogram",
]
