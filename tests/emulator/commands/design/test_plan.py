"""`emuchain plan`: consistency of its numbers, JSON, the picture, and bad input."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.cluster import load_cluster
from emuchain.emulator.commands.cli import main
from emuchain.emulator.network import load_network
from emuchain.emulator.plan import ChainPlan, Layout, smallest_cluster
from emuchain.emulator.run import steady_state

from ...counted import COUNTED

SMALL_BOARDS = """
name = "small"
[[boards]]
type = "vc709"
dsp_share = 1.0
on_chip_memory_kbit = 1500
[links]
bandwidth_gbps = 150
latency_ns = 1000
"""

LARGE_BOARDS = SMALL_BOARDS.replace(
    "dsp_share = 1.0\non_chip_memory_kbit = 1500", "on_chip_memory_kbit = 1_000_000"
)


PlanOf = Callable[..., ChainPlan]
LaidOut = Callable[..., Layout]


@pytest.fixture(scope="module")
def laid_out(plan_of: PlanOf) -> LaidOut:
    """Lays out a network on some devices of a cluster."""

    def lay(network: str, devices: int, cluster: str = "vc709", memory: str = "modelled") -> Layout:
        return plan_of(network=network, devices=devices, cluster=cluster, memory=memory).layout()

    return lay


def emuchain(*arguments: str) -> int:
    """Run a command and return its exit status."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code if isinstance(ended.value.code, int) else 0


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert emuchain("plan", *arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("network", "devices"), [("quick-cifar", 1), ("quick-cifar", 4), ("alexnet", 5)]
)
def test_constraints_of_dsps_and_work(plan_of: PlanOf, network: str, devices: int) -> None:
    plan = plan_of(network=network, devices=devices, changes=COUNTED)
    layout, convolutions = plan.layout(), steady_state(plan).convolutions
    assert len(layout.devices) == devices
    for device in layout.devices:
        board = device.board
        multipliers = sum(
            engine.multipliers for held in device.slices for engine in held.engines.built
        )
        dsp = board.limits["dsp"]
        assert dsp is not None
        assert (
            device.resources.dsp == multipliers <= board.multipliers <= dsp
        )  # equation (11), alpha = 1
        assert device.slowest.sample_ps <= layout.interval_ps, device.slowest.name
        macs = sum(held.part.macs for held in device.slices)
        # No device does more than its multipliers can.
        assert 2 * macs * board.period_ps <= multipliers * layout.interval_ps
    peak = 2 * board.multipliers / board.period_ps * 1000
    assert convolutions is not None
    assert convolutions.gops_per_fpga <= peak * 6 / 4  # FPDeep counts an EB of the first layer too


def test_without_balanced_parameters_the_interval_is_that_of_the_simulator(plan_of: PlanOf) -> None:
    plan = plan_of(network="quick-cifar", devices=3)
    layout = plan.layout()
    assert not layout.balancing.blocks
    assert layout.interval_ps == plan.timing.interval_ps


def test_balanced_parameters_are_conserved(laid_out: LaidOut, tmp_path: Path) -> None:
    """Boards too small for the late layers: together they store all parameters, and links carry the
    balanced ones.
    """
    layout = laid_out("vgg16-cifar", 22, memory="fpdeep")
    blocks = layout.balancing.blocks
    assert blocks
    assert layout.balancing.fits
    stored = sum(held.memory.lpram.bytes for device in layout.devices for held in device.slices)
    stored += sum(device.bpram.bytes for device in layout.devices)
    assert stored == 4 * layout.network.parameters
    path = tmp_path / "large.toml"
    path.write_text(LARGE_BOARDS)
    without = laid_out("vgg16-cifar", 22, str(path), memory="fpdeep")
    assert not without.balancing.blocks
    for loaded, free in zip(layout.links, without.links, strict=True):
        extra = sum(
            b.parameter_bytes for b in blocks if b.store_device <= loaded.link < b.user_device
        )
        assert loaded.forward_bytes == free.forward_bytes + extra
        assert loaded.backward_bytes == free.backward_bytes + extra
    for device in layout.devices:
        assert device.buffers.bytes <= device.board.on_chip_memory_bytes
        assert device.shortfall_bytes == 0


def test_fully_connected_layers_too_large_for_a_board_are_off_chip(laid_out: LaidOut) -> None:
    layout = laid_out("alexnet", 5, memory="fpdeep")
    held = {held.part.layer.name: held for device in layout.devices for held in device.slices}
    assert held["fc6"].off_chip_bytes >= 2 * 4 * 9216 * 4096 // 2
    assert held["fc6"].memory.lpram.bytes <= 4 * 4096, "the bias at most"
    assert held["conv5"].off_chip_bytes == 0
    assert not layout.fits, "it costs no time"
    assert layout.devices[4].port_bytes == pytest.approx(2 * layout.devices[4].off_chip_bytes)


def test_full_size_vgg_does_not_fit_fifteen_vc709(plan_of: PlanOf) -> None:
    """58.9 MB of convolution weights, and as much for gradients, on boards of 6.8 MB."""
    plan = plan_of(network="vgg16", devices=15, memory="fpdeep")
    layout = plan.layout()
    assert not layout.balancing.fits
    assert layout.interval_ps == plan.timing.interval_ps, "parameters are not moved then"
    convolutions = sum(
        held.memory.lpram.bytes
        for device in layout.devices
        for held in device.slices
        if held.part.layer.convolves
    )
    assert convolutions == pytest.approx(58.9e6, rel=0.002)
    assert 2 * convolutions > sum(device.board.on_chip_memory_bytes for device in layout.devices)


def test_the_smallest_cluster_fits_and_the_one_below_does_not(
    laid_out: LaidOut, tmp_path: Path
) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SMALL_BOARDS.replace("1500", "12000"))
    cluster = load_cluster(str(path))
    found = smallest_cluster(load_network("resnet8-cifar"), cluster, 1, most=16)
    assert found is not None
    assert found > 2
    assert not laid_out("resnet8-cifar", found, str(path)).off_chip_bytes
    assert laid_out("resnet8-cifar", found - 1, str(path)).off_chip_bytes
    tiny = dataclasses.replace(
        cluster, boards=(dataclasses.replace(cluster.boards[0], on_chip_memory_bytes=1000),)
    )
    assert smallest_cluster(load_network("lenet-mnist"), tiny, 1, most=20) is None


def test_the_aim_of_storage_lowers_the_fullest_device(laid_out: LaidOut, tmp_path: Path) -> None:
    path = tmp_path / "even.toml"
    boards = SMALL_BOARDS.replace("1500", "2000")
    path.write_text(boards)
    fast = laid_out("quick-cifar", 6, str(path), memory="fpdeep")
    path.write_text(boards + '[resources]\naim = "storage"\n')
    even = laid_out("quick-cifar", 6, str(path), memory="fpdeep")
    assert fast.balancing.blocks and even.balancing.blocks and even.balancing.fits
    assert even.storage_bytes < fast.storage_bytes


def test_engines_of_luts_make_it_faster_and_count_as_luts(
    laid_out: LaidOut, tmp_path: Path
) -> None:
    path = tmp_path / "luts.toml"
    boards = SMALL_BOARDS.replace("dsp_share = 1.0", 'dsp_share = 0.5\nmultipliers = "one-per-dsp"')
    path.write_text(boards)
    few = laid_out("quick-cifar", 2, str(path), memory="fpdeep")
    path.write_text(boards + "[resources]\nalpha = 0.9\n")
    more = laid_out("quick-cifar", 2, str(path), memory="fpdeep")
    assert more.interval_ps < few.interval_ps
    assert all(device.resources.dsp <= 1800 for device in more.devices)
    assert all(
        d.resources.lut > f.resources.lut for d, f in zip(more.devices, few.devices, strict=True)
    )


def test_json_has_the_numbers_of_the_layout(
    laid_out: LaidOut, capsys: pytest.CaptureFixture[str]
) -> None:
    said = as_json(capsys, "quick-cifar", "--devices", "3")
    layout = laid_out("quick-cifar", 3)
    assert said["interval_ps"] == layout.interval_ps
    assert said["fits_in_bytes"] is True
    assert said["smallest_cluster_devices"] == 3
    assert [device["on_chip_bytes"] for device in said["devices"]] == [
        d.buffers.bytes for d in layout.devices
    ]
    assert said["links"][0]["forward_gbps"] == pytest.approx(
        8e3 * said["links"][0]["forward_bytes_per_sample"] / said["interval_ps"]
    )
    for device in said["devices"]:
        for held in device["slices"]:
            assert held["multipliers"] == {
                p: n * held["tile_multipliers"] for p, n in held["tiles"].items()
            }
        for kind in ("dsp", "lut", "ff", "bram", "transceiver"):
            assert 0 < device["utilisation"][f"{kind}_share"] < 1


def test_boards_of_which_little_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plain.toml"
    path.write_text(
        'name = "plain"\nboards = [{ name = "b", clock_mhz = 200, dsp = 900, on_chip_memory_kbit ='
        " 90000 }]\nlinks = { bandwidth_gbps = 10, latency_ns = 5 }\n"
    )
    said = as_json(capsys, "lenet-mnist", "--cluster", str(path), "--devices", "2")
    assert said["devices"][0]["utilisation"]["lut_share"] is None
    assert said["exceeded_on_devices"] == {}
    assert emuchain("plan", "lenet-mnist", "--cluster", str(path), "--devices", "2") == 0
    assert "memory: fits on chip" in capsys.readouterr().out.splitlines()


def test_what_does_not_fit_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SMALL_BOARDS)
    words = ["quick-cifar", "--cluster", str(path), "--memory", "fpdeep"]
    assert emuchain("plan", *words) == 0
    printed = capsys.readouterr().out
    [verdict] = [line for line in printed.splitlines()[:8] if line.startswith("memory: ")]
    found = as_json(capsys, *words)
    assert found["fits"] is found["fits_in_bytes"] is False
    assert found["missing_bytes"] == found["shortfall_bytes"] > 0
    assert verdict.startswith(
        f"memory: does not fit, {found['missing_bytes'] / 2**20:.3g} MiB missing on 1 of 1 device; "
    )
    assert verdict.endswith("nor would it fit 1,024")  # the line goes on
    assert "missing with values of 2 bytes: " in printed


def test_what_is_off_chip_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SMALL_BOARDS.replace("1500", "12000"))
    words = ["resnet8-cifar", "--cluster", str(path)]
    assert emuchain("plan", *words) == 0
    printed = capsys.readouterr().out
    found = as_json(capsys, *words)
    assert found["fits"] is True
    [device] = found["devices"]
    assert device["off_chip_bytes"] == sum(held["off_chip_bytes"] for held in device["slices"]) > 0
    assert device["off_chip_gbytes_per_s"] == pytest.approx(
        1e3 * device["off_chip_bytes_per_sample"] / found["interval_ps"]
    )
    assert device["off_chip_ps_per_sample"] <= found["interval_ps"]
    [verdict] = [line for line in printed.splitlines()[:8] if line.startswith("memory: ")]
    assert " off chip; " in verdict
    assert verdict.endswith(f"; {found['smallest_cluster_devices']} boards hold all on chip")
    assert "\nOff-chip memory" in printed


@pytest.mark.parametrize("engines", [(), ("--engines", "turns", "--schedule", "gpipe")])
def test_the_picture(engines: tuple[str, ...], tmp_path: Path) -> None:
    """It has what each device keeps over time, in bytes; below the layout, or below actions."""
    pytest.importorskip("matplotlib")
    path = tmp_path / "fig14.svg"
    words = "plan quick-cifar --devices 3 --batch 8 --micro-batch 4 --range none".split()
    assert emuchain(*words, *engines, "--plot", str(path)) == 0
    drawn = path.read_text()
    assert "features kept, and the most of each device" in drawn
    assert all(f"device {device}: " in drawn for device in range(3))


BAD = {
    "unknown network": (["quick-cifer"], "did you mean `quick-cifar`"),
    "unknown cluster": (["quick-cifar", "--cluster", "vc700"], "`cluster` = 'vc700'"),
    "too many devices": (["quick-cifar", "--devices", "385"], "`devices` = 385"),
    "no devices": (["quick-cifar", "--devices", "0"], "`devices` = 0"),
    "devices are words": (["quick-cifar", "--devices", "two"], "--devices"),
    "no such network": (["quick-cigar"], "did you mean `quick-cifar`?"),
    "missing folder": (["quick-cifar", "--plot", "nowhere/a.png"], "`--plot` = 'nowhere/a.png'"),
    "unknown format of pictures": (["quick-cifar", "--plot", "a.xyz"], "`--plot` a.xyz"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(capsys: pytest.CaptureFixture[str], case: str) -> None:
    arguments, message = BAD[case]
    if "--plot" in arguments:
        pytest.importorskip("matplotlib")
    assert emuchain("plan", *arguments) == 2
    captured = capsys.readouterr()
    assert not captured.out
    assert len(captured.err.splitlines()) == 1
    assert message in captured.err
