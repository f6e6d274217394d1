"""Any file of measurements ends in one line, or in a file that commands take; nothing else is
printed.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from emuchain.emulator.calibrate import LinkCalibration, ProfileFit, calibrate_board, calibrate_link
from emuchain.emulator.cluster import load_cluster
from emuchain.emulator.common import InputError, Note
from emuchain.emulator.network import load_network
from emuchain.emulator.profile import load_profile

NUMBERS = st.one_of(
    st.sampled_from(
        [
            "0",
            "-1",
            "nan",
            "inf",
            "-inf",
            "",
            "x",
            "1e-320",
            "1e400",
            "1e308",
            "1e-300",
            "9" * 200,
            "1_0",
            "0x1",
            "٣",
        ]
    ),
    st.integers(1, 1 << 30).map(str),
    st.floats(1e-12, 1e12).map(repr),
)
GOOD = st.floats(0.5, 2)
COLUMNS = {
    "message_bytes": st.sampled_from([str(2**power) for power in range(22)]),
    "message_ns": st.floats(1e2, 1e6).map(repr),
    "message_us": st.floats(1e-1, 1e3).map(repr),
    "message_s": st.floats(1e-7, 1e-3).map(repr),
    "transfer_s": st.floats(1e-4, 1e-1).map(repr),
    "loop_length": st.integers(1, 65536).map(str),
    "version": st.sampled_from(["1.1", "1.3", "2.6", "", "new"]),
    "function": st.sampled_from(["copy", "add", "triad", "scale", "pci-read"]),
    "best_mbytes_per_s": st.floats(1e3, 1e5).map(repr),
    "fpgas": st.integers(1, 4).map(str),
    "matrix_size": st.sampled_from(["512", "4096"]),
    "best_s": st.floats(1e-3, 1).map(repr),
    "gflops": st.floats(1, 1000).map(repr),
    "network": st.sampled_from(["quick-cifar", "mine"]),
    "layer": st.sampled_from(["conv1", "conv2", "fc1"]),
    "phase": st.sampled_from(["FP", "PG", "EB", "backward"]),
    "samples": st.sampled_from(["8", "16"]),
    "us": st.floats(1e-1, 1e5).map(repr),
    "cycles": st.floats(1e2, 1e7).map(repr),
    "clock_mhz": st.floats(50, 800).map(repr),
    "dsp_used": st.integers(1, 4000).map(str),
    "run": st.sampled_from(["a", "b", "c"]),
    "board": st.sampled_from(["VC709", "vc709", "U280"]),
}
KINDS = (
    ("message_bytes", "message_us"),
    ("message_bytes", "loop_length", "transfer_s"),
    ("function", "best_mbytes_per_s"),
    ("matrix_size", "best_s"),
    ("matrix_size", "gflops"),
    ("network", "layer", "phase", "samples", "us"),
    ("network", "layer", "phase", "samples", "cycles"),
    ("clock_mhz", "dsp_used"),
    (),
)


@st.composite
def tables(draw: st.DrawFn) -> str:
    """Files of one kind with further columns, mostly with numbers that may be meant; a few cells
    are anything.
    """
    more = draw(st.lists(st.sampled_from([*COLUMNS]), max_size=3))
    columns = list(dict.fromkeys([*draw(st.sampled_from(KINDS)), *more]))
    wild = draw(st.sampled_from([0, 0, 0, 1, 30]))
    rows = draw(st.integers(0, 12))
    lines = [",".join(columns)]
    for _ in range(rows):
        cells = [
            draw(NUMBERS if draw(st.integers(0, 99)) < wild else COLUMNS[column])
            for column in columns
        ]
        lines.append(",".join(cells))
    return "\n".join(lines)


@st.composite
def links(draw: st.DrawFn) -> str:
    """Messages of one link whatever its constants, in some unit."""
    latency, rate = (10 ** draw(st.floats(*bounds)) for bounds in ((-16, 6), (-3, 18)))
    column, scale = draw(
        st.sampled_from([("message_s", 1), ("message_us", 1e6), ("message_ns", 1e9)])
    )
    sizes = [2 ** draw(st.integers(0, 40)) for _ in range(8)]
    rows = [
        f"{size},{(latency + size / rate) * scale * draw(st.floats(0.97, 1.03))!r}"
        for size in sizes
    ]
    return "\n".join([f"message_bytes,{column}", *rows])


def calibrated(kind: str, text: str) -> None:
    """Calibrate a link or a board, and read what is written; the one line of an error is all there
    is.
    """
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", Note)
        path, out = Path(folder) / "fuzz.csv", Path(folder) / "out.toml"
        path.write_text(text, "utf-8")
        try:
            done = (
                calibrate_link(path, out=out)
                if kind == "link"
                else calibrate_board(path, "vc709", out=out)
            )
        except InputError as error:
            assert str(error) and "\n" not in str(error)
            assert not out.exists()
            return
        if isinstance(done, LinkCalibration):
            load_cluster(str(out))
        elif isinstance(done.fit, ProfileFit):
            network = load_network("quick-cifar")
            if done.fit.network == network.name:
                load_profile(out, network)
        else:
            load_cluster(
                {
                    "name": "c",
                    "boards": [{"type": str(out)}],
                    "links": {"bandwidth_gbps": 1, "latency_ns": 0},
                }
            )


@pytest.mark.parametrize("kind", ["link", "board"])
@settings(
    max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(text=tables())
@example(text="message_bytes,message_us\n" + "64,1e-320\n" * 5)
@example(text=f"matrix_size,best_s\n{'9' * 200},1\n")
@example(text="function,best_mbytes_per_s\ncopy,1e-18\ncopy,1e18\n")
@example(text="function,best_mbytes_per_s,run\ncopy,1e3,a\nadd,1e3,a\ncopy,1e3,b\n")
@example(text="run,message_bytes,message_ns\na,64,900\na,4096,999\na,65536,9e3\na,9,800\nb,9,800")
def test_any_table(kind: str, text: str) -> None:
    calibrated(kind, text)


@settings(
    max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(text=links())
def test_any_link(text: str) -> None:
    calibrated("link", text)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    text=st.one_of(
        st.text(max_size=200),
        st.sampled_from([*COLUMNS]).flatmap(lambda name: st.just(f"{name}\n1")),
    )
)
@pytest.mark.parametrize("kind", ["link", "board"])
def test_any_text(kind: str, text: str) -> None:
    calibrated(kind, text)
