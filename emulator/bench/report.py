"""Benchmarks as tables, for a terminal or in Markdown."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..common import format_bytes, percent, plural
from ..view import table
from . import codec
from .shapes import BAR_SHARE
from .stopwatch import geometric_mean

if TYPE_CHECKING:
    from . import recurrent
    from .chain import Comparison, Setting, Side
    from .curve import WholeCommand
    from .kernels import Row, Summary
    from .simulate import Cost


@dataclasses.dataclass(frozen=True)
class Sheet:
    """A table; its first `words` columns hold words, the others numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int

    def draw(self) -> None:
        """Print the table as text."""
        table(self.title, self.columns, self.rows, left=self.columns[: self.words])

    def markdown(self) -> str:
        """Return the table in Markdown, under its title."""
        rule = ["---"] * self.words + ["--:"] * (len(self.columns) - self.words)
        lines = ["| " + " | ".join(cells) + " |" for cells in (self.columns, rule, *self.rows)]
        return "\n".join([f"**{self.title}**", "", *lines, ""])


def kernel_answer(rows: Sequence[Row]) -> list[str]:
    """Return what the rows say together: how near the peak, and how fast beside PyTorch."""
    barred = [row for row in rows if row.has_bar]
    lines = [f"{len(rows)} phases of layers were measured"]
    if barred:
        met = sum(row.peak_share >= BAR_SHARE for row in barred)
        least = min(barred, key=lambda row: row.peak_share)
        lines.append(f"{met} of {len(barred)} with a bar reach {BAR_SHARE:.0%} of the peak")
        lines.append(f"least of the peak: {percent(least.peak_share)}, {least.phase} of {least.layer}")
    ratios = {row: row.ratio for row in rows if row.ratio is not None}
    if ratios:
        slowest = min(ratios, key=lambda row: ratios[row])
        lines.append(f"{_ratio(geometric_mean(list(ratios.values())))} times as fast as PyTorch, the geometric mean")
        lines.append(f"least: {_ratio(ratios[slowest])} times, {slowest.phase} of {slowest.layer}")
    return lines


def kernel_sheet(name: str, rows: Sequence[Row]) -> Sheet:
    """Return the table of one list's rows."""
    columns = ("network", "layer", "phase", "GFLOP/s", "peak", "of peak", "bar", "PyTorch", "ratio")
    cells = tuple(
        (
            row.network,
            row.layer,
            row.phase,
            f"{row.gflops:.1f}",
            f"{row.peak_gflops:.1f}",
            percent(row.peak_share),
            ("met" if row.peak_share >= BAR_SHARE else "missed") if row.has_bar else "-",
            "-" if row.torch_gflops is None else f"{row.torch_gflops:.1f}",
            _ratio(row.ratio),
        )
        for row in rows
    )
    return Sheet(f"{name}: micro-batches of {rows[0].samples}, one thread", columns, cells, 3)


def recurrent_answer(summaries: Sequence[recurrent.Summary], rows: Sequence[recurrent.Row]) -> list[str]:
    """Return how fast the layers are beside PyTorch's, or else our speed alone."""
    if not summaries:
        fastest = max(rows, key=lambda row: row.gflops)
        return [f"layers measured: {len(rows)}; up to {fastest.gflops:.1f} GFLOP/s, {_layer(fastest)}"]
    return [
        f"{each.kind.upper()}, batch {_batches(each)}: {_ratio(each.ratio_geometric_mean)} times as fast as PyTorch,"
        f" the geometric mean; least {_ratio(each.ratio_minimum)}; a step at this machine's bound would have"
        f" {_ratio(each.bound_ratio_geometric_mean)}"
        for each in summaries
    ]


def recurrent_sheet(kind: str, rows: Sequence[recurrent.Row]) -> Sheet:
    """Return the table of one kind's layers."""
    cells = tuple(
        (
            str(row.batch),
            str(row.units),
            f"{1e3 * row.seconds:.2f} ms",
            f"{row.gflops:.1f}",
            f"{1e3 * row.bound_seconds:.2f} ms",
            percent(row.bound_share),
            "-" if row.torch_seconds is None else f"{1e3 * row.torch_seconds:.2f} ms",
            _ratio(row.ratio),
        )
        for row in rows
    )
    title = f"{kind.upper()}: training steps of {rows[0].steps} time steps, one thread"
    return Sheet(title, ("batch", "units", "time", "GFLOP/s", "bound", "of bound", "PyTorch", "ratio"), cells, 0)


def summary_sheet(summaries: Sequence[Summary]) -> Sheet:
    """Return a table with a row for each list and phase."""
    means = "ratio, geometric mean", "at the peak", "ratio, least"
    columns = ("list", "phase", "layers", *means, "with a bar", "least of peak")
    cells = tuple(
        (
            row.list,
            row.phase,
            str(row.layers),
            _ratio(row.ratio_geometric_mean),
            _ratio(row.peak_ratio_geometric_mean),
            _ratio(row.ratio_minimum),
            str(row.bar_layers),
            "-" if row.bar_share_minimum is None else percent(row.bar_share_minimum),
        )
        for row in summaries
    )
    return Sheet("Summary", columns, cells, 2)


KERNEL_NOTES = (
    f"Peak: multiply-adds in registers, measured together with each phase. Bar: {BAR_SHARE:.0%} of the peak, for layers"
    " of 64 channels or more and 64 output pixels or more in the micro-batch. Ratio: PyTorch's time over ours, one"
    " thread each; at the peak: what it would be if ours took no longer than its multiply-adds. A network's first layer"
    " has no EB, here as in training."
)
RECURRENT_NOTES = (
    "A training step: forward, and backward with all gradients, from plain weights. GFLOP/s count only its products."
    " Bound: products at the multiply-add peak, but those with R at each step no faster than R can be read; both are"
    " measured together with it. Ratio: PyTorch's time over ours, one thread each, medians."
)
NO_TORCH = "PyTorch was not measured: it is not installed (`pip install torch==2.13.0`), or --no-torch was given."
CHAIN_NOTES = (
    "The sides train in turns; each is stopped while the other trains. samples/s: the median over the turns; its ratio:"
    " the median of ours to PyTorch's, turn by turn (more is better). Memory: the peak of the sum of PSS over all"
    " processes; its ratio: ours to PyTorch's (less is better). At the peak: only the multiply-adds of training,"
    " on all cores at once; no program has more samples/s."
)


def chain_answer(setting: Setting, comparison: Comparison) -> list[str]:
    """Return the speed and memory of the chain, and beside PyTorch's, if that was measured."""
    ours, torch = comparison.ours, comparison.torch
    lines = [
        f"{setting.network} on {plural(setting.devices, 'device')}: {ours.samples_per_s:,.1f} samples/s on this machine"
    ]
    lines.append(f"memory: {format_bytes(ours.peak_bytes)}")
    if torch is not None:
        lines.append(f"{_ratio(comparison.ratio)} times as fast as PyTorch with {torch.samples_per_s:,.1f} samples/s")
        at_most = f"{comparison.peak.samples_per_s:,.1f} samples/s, {_ratio(comparison.peak_ratio)} times as fast"
        lines.append(f"at the cores' multiply-add peak: {at_most}")
        lines.append(f"{_ratio(comparison.memory_ratio)} times its memory of {format_bytes(torch.peak_bytes)}")
    return lines


def chain_sheet(setting: Setting, comparison: Comparison) -> Sheet:
    """Return a table with a row for each side, and their ratios."""
    how = f"emuchain, {setting.devices} devices in {setting.ranks} rank{'s' * (setting.ranks != 1)}"
    rows = [_side_row(how, comparison.ours)]
    if comparison.torch is not None:
        rows.append(_side_row(f"PyTorch, {setting.threads} thread{'s' * (setting.threads != 1)}", comparison.torch))
    rows.append((*_side_row("multiply-adds only, at the peak", comparison.peak)[:-1], ""))
    if comparison.torch is not None:
        rows.append(("ratio", "", _ratio(comparison.ratio), "", _ratio(comparison.memory_ratio)))
        rows.append(("ratio at the peak", "", _ratio(comparison.peak_ratio), "", ""))
    title = f"{setting.network}, mini-batches of {setting.batch}, micro-batches of {setting.micro_batch}, fpdeep"
    return Sheet(title, ("side", "turns", "samples/s", "least to most", "memory"), tuple(rows), 1)


SIMULATION_NOTES = (
    "Processor seconds. Plan: mapping, timing, the steady pipeline and the dry run, regardless of the samples; for"
    " each device, in ms. Run: the samples through the chain; for each row that a resource serves, in ns."
)


def simulation_answer(costs: Sequence[Cost]) -> list[str]:
    """Return what the largest cluster and the longest run cost."""
    most, longest = max(costs, key=lambda cost: cost.devices), max(costs, key=lambda cost: cost.samples)
    return [
        f"{each.network} on {plural(each.devices, 'device')}: {each.plan_seconds:.2f} s to plan,"
        f" {each.run_seconds:.2f} s for {plural(each.samples, 'sample')}"
        for each in (most, longest)
    ]


def simulation_sheet(costs: Sequence[Cost]) -> Sheet:
    """Return a table with a row for each case."""
    columns = ("network", "devices", "samples", "rows of a sample", "plan", "plan/device", "run", "run/row")
    cells = tuple(
        (
            cost.network,
            str(cost.devices),
            str(cost.samples),
            str(cost.sample_rows),
            f"{cost.plan_seconds:.2f} s",
            f"{cost.device_plan_ms:.2f} ms",
            f"{cost.run_seconds:.2f} s",
            f"{cost.row_ns:.1f} ns",
        )
        for cost in costs
    )
    return Sheet("Simulation, mini-batches of 64, fpdeep", columns, cells, 1)


CURVE_NOTES = "Whole commands, with their start and all that they print: seconds of the processor, peak memory."


def curve_sheet(found: Sequence[WholeCommand]) -> Sheet:
    """Return a table with a row for each command."""
    cells = tuple(
        (
            each.command,
            f"{each.boards:,}",
            f"{each.processor_seconds:.2f} s",
            f"{each.board_ms:.2f} ms",
            f"{each.peak_bytes / 1e6:,.0f} MB",
        )
        for each in found
    )
    return Sheet("Whole commands", ("command", "boards", "processor", "a board", "memory"), cells, 1)


CODEC_NOTES = (
    "GB of float32 a second, one thread; medians. Size: float32's over the compressed one. Error: the largest."
    " Ratio: our speed over theirs, round by round. Bar: the lowest ratio required, both ways; for ours, GB/s."
)


def codec_answer(rows: Sequence[codec.Row]) -> list[str]:
    """Return our speed, and which bars are missed."""
    ours = rows[0]
    missed = [row.name for row in rows if not row.meets_bar]
    return [
        f"{ours.name}: {ours.compress_gbps:.2f} GB/s to compress, {ours.decompress_gbps:.2f} GB/s to decompress",
        f"sizes fall to 1/{ours.size_ratio:.2f}; the greatest error is {ours.error:.1e}",
        f"bars missed: {'; '.join(missed)}" if missed else "all bars are met",
    ]


def codec_sheet(rows: Sequence[codec.Row], mebibytes: int, exponent: int) -> Sheet:
    """Return a table with a row for each side."""
    columns = ("side", "size", "error", "compress", "ratio", "decompress", "ratio", "bar", "verdict")
    cells = tuple(
        (
            row.name,
            f"{row.size_ratio:.2f}",
            f"{row.error:.1e}",
            f"{row.compress_gbps:.2f} GB/s",
            f"{row.compress_ratio:.2f}",
            f"{row.decompress_gbps:.2f} GB/s",
            f"{row.decompress_ratio:.2f}",
            f"{row.bar:g}" if row.bar is not None else f"{codec.LEAST_GBPS:g} GB/s",
            "met" if row.meets_bar else "missed",
        )
        for row in rows
    )
    title = f"Codec: {mebibytes} MiB of float32, {percent(codec.ZERO_SHARE)} of them below 2^{exponent}"
    return Sheet(title, columns, cells, 1)


def _side_row(name: str, side: Side) -> tuple[str, ...]:
    rates = [turn.rate for turn in side.turns]
    return (
        name,
        str(len(rates)),
        f"{side.samples_per_s:.1f}",
        f"{min(rates):.1f} to {max(rates):.1f}",
        format_bytes(side.peak_bytes),
    )


def _layer(row: recurrent.Row) -> str:
    return f"{row.kind.upper()} of {row.units} units, batch {row.batch}"


def _batches(summary: recurrent.Summary) -> str:
    first, last = min(summary.batches), max(summary.batches)
    return str(first) if first == last else f"{first} to {last}"


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"
