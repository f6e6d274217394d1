"""Exchange of gradients between replicas of a network (INCEPTIONN, section IV): ring, aggregator, and hierarchies."""

from ..network import COMPRESSIBLE_TOS
from .aggregator import Aggregator, Report
from .broadcast import Above, Below, Broadcast, Outlet
from .gradient import Gradient
from .histogram import BINS, histogram
from .parcel import Parcel, ParcelFormat
from .port import ORDINARY_TOS, Port, Traffic
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
