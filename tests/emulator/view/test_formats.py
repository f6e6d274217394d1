"""The line that says what stays wide on the fullest link."""

from __future__ import annotations

from typing import Any

from emuchain.emulator.view import command_line, wide_lines


def test_what_stays_wide(plan_of: Any) -> None:
    """quick-cifar on 3 boards: conv2 is cut between the first two, whose partial sums fill the link."""
    keys = {"network": "quick-cifar", "devices": 3, "schedule": "sync"}
    assert wide_lines(plan_of(**keys)) == []
    assert wide_lines(plan_of(**{**keys, "devices": 1}, precision="bf16")) == []
    [line] = wide_lines(plan_of(**keys, precision="bf16"))
    assert line.text == "fullest link, 0 to 1: 72.2 kB/sample; 90.8 % of its bytes stay fp32: partial activations"
    plan = plan_of(**keys, precision="bf16")
    narrow, wide = (
        sum(
            stream.sample_bytes
            for stream in plan.timing.sent(0, forward=True)
            if (stream.number_format.bits == 32) == is_wide
        )
        for is_wide in (False, True)
    )
    assert (narrow + wide, round(100 * wide / (narrow + wide), 1)) == (72192, 90.8)


def test_commands_have_the_flags_of_the_table() -> None:
    given = {"network": "quick-cifar", "precision": {"format": "mxfp8", "loss_scale": 8}}
    assert command_line("plan", None, given) == "emuchain plan quick-cifar --precision mxfp8 --precision.loss-scale 8"
