from .action_run import ActionRun
from .actions import LEGEND, PipelineDrawing
from .answer import (
    Line,
    bits_line,
    epoch_line,
    memory_line,
    memory_verdict,
    next_line,
    outcome_line,
    print_answer,
    rate_line,
    title_of,
    weights_line,
)
from .chart import draw_chart, gantt, gantt_lines
from .formats import wide_lines
from .layout import draw_layout, layout_as_json
from .limits import command_line, cut_setting, limit_lines, next_changes, other_schedule, wider_links
from .multipliers import logic_lines, lut_words, multiplier_texts
from .picture import coinciding, log_ticks, nested_widths, new_figure, picture_file, save_figure, whole_ticks
from .progress import EpochRow, Progress, make_progress, point_progress
from .ranges import at_values, class_words, range_lines
from .row_run import RowRun
from .rows import LaneKind, Level
from .samples import DEFAULT_WINDOW, RunSamples, SpanRecorder, Window
from .simulation import accuracy_cost_line, cost_rows, costs_as_json, death_lines, simulation_as_json, time_cost_line
from .spans import Chart, ChartLine, Flow, Lane, Look, Span, Timeline
from .stages import order_line, stage_lines, stage_rows, stages_as_json
from .steady import cause_as_json, draw_steady_state, print_steady_state, print_steady_tables, steady_state_as_json
from .table import most_loaded, table
from .tables import (
    device_rows,
    epoch_rows,
    exchange_rows,
    layer_rows,
    link_rows,
    resource_rows,
    rounding_rows,
    slice_names,
)
from .tasks import pair_chart, pair_timeline
from .terminal import ignored, mebibytes, say, screen_width, terminal_width, time_and_ps
from .trace import TraceRequest, pair_trace, recorded_run, trace_file, write_trace

__all__ = [
    "DEFAULT_WINDOW",
    "LEGEND",
    "ActionRun",
    "Chart",
    "ChartLine",
    "EpochRow",
    "Flow",
    "Lane",
    "LaneKind",
    "Level",
    "Line",
    "Look",
    "PipelineDrawing",
    "Progress",
    "RowRun",
    "RunSamples",
    "Span",
    "SpanRecorder",
    "Timeline",
    "TraceRequest",
    "Window",
    "accuracy_cost_line",
    "at_values",
    "bits_line",
    "cause_as_json",
    "class_words",
    "coinciding",
    "command_line",
    "cost_rows",
    "costs_as_json",
    "cut_setting",
    "death_lines",
    "device_rows",
    "draw_chart",
    "draw_layout",
    "draw_steady_state",
    "epoch_line",
    "epoch_rows",
    "exchange_rows",
    "gantt",
    "gantt_lines",
    "ignored",
    "layer_rows",
    "layout_as_json",
    "limit_lines",
    "link_rows",
    "log_ticks",
    "logic_lines",
    "lut_words",
    "make_progress",
    "mebibytes",
    "memory_line",
    "memory_verdict",
    "most_loaded",
    "multiplier_texts",
    "nested_widths",
    "new_figure",
    "next_changes",
    "next_line",
    "order_line",
    "other_schedule",
    "outcome_line",
    "pair_chart",
    "pair_timeline",
    "pair_trace",
    "picture_file",
    "point_progress",
    "print_answer",
    "print_steady_state",
    "print_steady_tables",
    "range_lines",
    "rate_line",
    "recorded_run",
    "resource_rows",
    "rounding_rows",
    "save_figure",
    "say",
    "screen_width",
    "simulation_as_json",
    "slice_names",
    "stage_lines",
    "stage_rows",
    "stages_as_json",
    "steady_state_as_json",
    "table",
    "terminal_width",
    "time_and_ps",
    "time_cost_line",
    "title_of",
    "trace_file",
    "weights_line",
    "whole_ticks",
    "wide_lines",
    "wider_links",
    "write_trace",
]
