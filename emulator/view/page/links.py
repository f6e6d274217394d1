"""Links: what each direction of each link has to carry at the steady rate, against its bandwidth."""

from __future__ import annotations

from typing import Any

from ...common import format_bytes, percent
from .parts import Chart, Key, Section, Table
from .source import Run, bandwidth_gbps


def links(run: Run) -> Section | None:
    """Return the section; None without a plan, and where there is no link."""
    if run.plan is None or run.steady is None or not run.steady.links:
        return None
    bars: list[dict[str, Any]] = [
        {
            "link": min(use.load.sender, use.load.receiver),
            "name": use.load.link.removeprefix("link ").replace("->", "→"),
            "right": use.load.receiver > use.load.sender,
            "demand": use.demand_gbps,
            "bandwidth": bandwidth_gbps(run.plan.cluster, use.load.sender, use.load.receiver),
            "bytes": use.load.sample_bytes,
        }
        for use in run.steady.links
    ]
    worst = max(bars, key=lambda bar: bar["demand"] / bar["bandwidth"])
    share = worst["demand"] / worst["bandwidth"]
    said = (
        f"The fullest direction, {worst['name']}, needs {worst['demand']:.2f} Gb/s of {worst['bandwidth']:g} Gb/s"
        f" ({percent(share)}) at the steady rate."
    )
    chart = Chart(
        "demand",
        "Demand on each link, in Gb/s, at the steady rate",
        {"bars": bars},
        (Key("to the right", "link-right"), Key("to the left", "link-left"), Key("bandwidth", "limit", "line")),
    )
    sent = {(link.sender, link.receiver): link for link in (run.usage.links if run.usage else ())}
    rows = []
    for use, bar in zip(run.steady.links, bars, strict=True):
        used = sent.get((use.load.sender, use.load.receiver))
        rows.append(
            [
                bar["name"],
                ", ".join(sorted({str(stream.path.value) for stream in use.load.streams})) or "–",
                format_bytes(bar["bytes"]),
                f"{bar['demand']:.2f} Gb/s",
                f"{bar['bandwidth']:g} Gb/s",
                percent(bar["demand"] / bar["bandwidth"]),
                format_bytes(sum(used.path_bytes.values())) if used else "–",
                percent(used.utilisation) if used else "–",
            ]
        )
    columns = ["link", "data paths", "a sample", "demand", "bandwidth", "share", "sent in the run", "used in the run"]
    return Section("Links", said, (chart,), (Table("Every link", columns, rows, ("link", "data paths")),))
