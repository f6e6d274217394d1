from .chart import Chart, Line, chart_of
from .chrome import trace_file, write_trace
from .course import Course
from .drawing import LEGEND, draw
from .flows import Flow, flows_of
from .gantt import gantt
from .lanes import Lane, LaneKind, lanes_of
from .pair_chart import pair_gantt
from .pair_trace import asked_pair_trace, write_pair_trace
from .pipeline_trace import write_pipeline_trace
from .recorder import SpanRecorder
from .request import TraceRequest
from .span import Level, Span
from .timeline import Timeline, timeline_of
from .window import DEFAULT_WINDOW, Window

__all__ = [
    "DEFAULT_WINDOW",
    "LEGEND",
    "Chart",
    "Course",
    "Flow",
    "Lane",
    "LaneKind",
    "Level",
    "Line",
    "Span",
    "SpanRecorder",
    "Timeline",
    "TraceRequest",
    "Window",
    "asked_pair_trace",
    "chart_of",
    "draw",
    "flows_of",
    "gantt",
    "lanes_of",
    "pair_gantt",
    "timeline_of",
    "trace_file",
    "write_pair_trace",
    "write_pipeline_trace",
    "write_trace",
]
