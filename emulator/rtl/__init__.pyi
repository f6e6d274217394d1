from .clock import RtlDeviceClock, clocks_of, run_mini_batches
from .design import KINDS, DeviceDesign, SliceDesign, designs_of
from .dots import MODULES, PlannedEngine, engine_module, planned_engines, write_engines
from .engines import DotEngine, EngineDesign, dot_engine, dot_sums
from .generate import MINI_BATCHES, Rtl
from .model import DeviceModel
from .numerics import RtlNumerics, check_device, rtl_numerics
from .resources import DeviceResources, device_resources, find_yosys
from .simulate import (
    EngineRows,
    MiniBatch,
    Reference,
    RtlChain,
    RtlResult,
    build_models,
    drawn_biases,
    drawn_images,
    simulate_rtl,
    waves_file,
    waves_files,
)
from .verilator import SOURCES, Tools, find_tools, lint, needs_compiler, sources

__all__ = [
    "KINDS",
    "MINI_BATCHES",
    "MODULES",
    "SOURCES",
    "DeviceDesign",
    "DeviceModel",
    "DeviceResources",
    "DotEngine",
    "EngineDesign",
    "EngineRows",
    "MiniBatch",
    "PlannedEngine",
    "Reference",
    "Rtl",
    "RtlChain",
    "RtlDeviceClock",
    "RtlNumerics",
    "RtlResult",
    "SliceDesign",
    "Tools",
    "build_models",
    "check_device",
    "clocks_of",
    "designs_of",
    "device_resources",
    "dot_engine",
    "dot_sums",
    "drawn_biases",
    "drawn_images",
    "engine_module",
    "find_tools",
    "find_yosys",
    "lint",
    "needs_compiler",
    "planned_engines",
    "rtl_numerics",
    "run_mini_batches",
    "simulate_rtl",
    "sources",
    "waves_file",
    "waves_files",
    "write_engines",
]
