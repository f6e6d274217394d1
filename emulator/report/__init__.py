"""Output to users: tables, text, JSON, pictures and progress; libraries that draw are imported at their first use."""

from .layout_json import layout_as_json
from .layout_picture import draw_layout
from .picture import check_picture, log_ticks, new_figure, save_figure, whole_ticks
from .point_progress import point_progress
from .progress import EpochRow, Progress, make_progress
from .steady_picture import draw_steady_state
from .steady_state import print_bottleneck, print_steady_state, print_steady_tables, steady_state_as_json
from .tables import device_rows, exchange_rows, layer_rows, link_rows, percent, table, time_and_ps

__all__ = [
    "EpochRow",
    "Progress",
    "check_picture",
    "device_rows",
    "draw_layout",
    "draw_steady_state",
    "exchange_rows",
    "layer_rows",
    "layout_as_json",
    "link_rows",
    "log_ticks",
    "make_progress",
    "new_figure",
    "percent",
    "point_progress",
    "print_bottleneck",
    "print_steady_state",
    "print_steady_tables",
    "save_figure",
    "steady_state_as_json",
    "table",
    "time_and_ps",
    "whole_ticks",
]
