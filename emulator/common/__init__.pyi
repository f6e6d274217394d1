from .errors import BUG_STATUS, INPUT_STATUS, InputError
from .escaped import escaped
from .hints import did_you_mean
from .html import html_table
from .line_file import LineFile
from .lock import own_folder
from .named_files import NO_FILE, NamedFiles, Paths, Reads, Role, Writes, in_folder, itself
from .processes import parse_status
from .reading import MOST_TOML_BYTES, open_file, read_file, read_text
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
from .units import IMAGENET_IMAGES, an, format_bytes, format_time_ps, gbps, gops, number, percent, plural
from .whole_file import WholeFile, touched, write_whole

__all__ = [
    "BUG_STATUS",
    "FINITE",
    "IMAGENET_IMAGES",
    "INPUT_STATUS",
    "MOST_TOML_BYTES",
    "NO_FILE",
    "Channels",
    "Finite",
    "Gbps",
    "GbytesPerSecond",
    "InputError",
    "LineFile",
    "Megahertz",
    "Microseconds",
    "NamedFiles",
    "Names",
    "Nanoseconds",
    "NotNegative",
    "NotNegativePair",
    "Paths",
    "Positive",
    "PositiveFinite",
    "PositiveNumber",
    "PositivePair",
    "Rate",
    "Reads",
    "Role",
    "Share",
    "Watts",
    "WholeFile",
    "Writes",
    "an",
    "did_you_mean",
    "escaped",
    "find",
    "format_bytes",
    "format_time_ps",
    "gbps",
    "gops",
    "html_table",
    "in_folder",
    "itself",
    "names",
    "number",
    "open_file",
    "own_folder",
    "parse_status",
    "percent",
    "plural",
    "read_file",
    "read_text",
    "touched",
    "write_whole",
]
