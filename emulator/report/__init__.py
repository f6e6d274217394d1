"""Output to users: tables, text, JSON, pictures and progress; libraries that draw are imported at their first use."""

from .layout_json import layout_as_json
from .layout_picture import draw_layout
from .picture import new_figure, save_figure
from .progress import EpochRow, Progress, make_progress
from .steady_state import print_bottleneck, print_steady_state, print_steady_tables, steady_state_as_json
from .tables import device_rows, exchange_rows, layer_rows, link_rows, percent, table, time_and_ps
from .terminal import terminal_width
from .timeline_picture import draw_timeline

__all__ = [
    "EpochRow",
    "Progress",
    "device_rows",
    "draw_layout",
    "draw_timeline",
    "exchange_rows",
    "layer_rows",
    "layout_as_json",
    "link_rows",
    "make_progress",
    "new_figure",
    "percent",
    "print_bottleneck",
    "print_steady_state",
    "print_steady_tables",
    "save_figure",
    "steady_state_as_json",
    "table",
    "terminal_width",
    "time_and_ps",
]
