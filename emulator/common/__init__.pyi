from .errors import BUG_STATUS, INPUT_STATUS, InputError
from .hints import did_you_mean
from .html import html_table
from .processes import parse_status
from .shipped import find, names
from .types import (
    FINITE,
    Channels,
    Finite,
    Gbps,
    GbytesPerSecond,
    Megahertz,
    Microseconds,
    Names,
    Nanoseconds,
    NotNegative,
    NotNegativePair,
    Positive,
    PositiveFinite,
    PositiveNumber,
    PositivePair,
    Rate,
    Share,
    Watts,
)
from .units import IMAGENET_IMAGES, format_bytes, format_time_ps, gbps, gops
from .whole_file import WholeFile, check_writable, write_whole

__all__ = [
    "BUG_STATUS",
    "FINITE",
    "IMAGENET_IMAGES",
    "INPUT_STATUS",
    "Channels",
    "Finite",
    "Gbps",
    "GbytesPerSecond",
    "InputError",
    "Megahertz",
    "Microseconds",
    "Names",
    "Nanoseconds",
    "NotNegative",
    "NotNegativePair",
    "Positive",
    "PositiveFinite",
    "PositiveNumber",
    "PositivePair",
    "Rate",
    "Share",
    "Watts",
    "WholeFile",
    "check_writable",
    "did_you_mean",
    "find",
    "format_bytes",
    "format_time_ps",
    "gbps",
    "gops",
    "html_table",
    "names",
    "parse_status",
    "write_whole",
]
