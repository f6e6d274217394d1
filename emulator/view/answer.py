"""The first screen of a command: at most eight lines that answer the question, before any table;
and how sure it is.

Beside these stand the lines of the range (from where to where, on what grounds, what to measure
first) and those of what boards multiply with; where formats are narrow, one says what on links
stays in single precision.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from ..cluster import Board, Fpga, MultiplierRate, peaks
from ..common import format_bytes, format_time_ps, number, percent, plural
from ..data import NgramBits
from ..mapping import DataPath, formats_of
from ..plan import ChainPlan, exchange_loads
from .terminal import ignored, mebibytes, screen_width, wrapped

if TYPE_CHECKING:
    from ..run import AnswerRange

MOST_LINES = 8

_NEXT = "next: "


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of an answer; an optional one is left out where there is no room, in which one
    `beside` takes none.
    """

    text: str
    optional: bool = False
    beside: bool = False


def print_answer(lines: Sequence[Line | str]) -> None:
    """Print an answer in at most eight lines of the screen, without those of its range."""
    given = [line if isinstance(line, Line) else Line(line) for line in lines]
    print("\n".join(first_screen(given, screen_width())))


def first_screen(lines: Sequence[Line], width: int) -> list[str]:
    """Return the lines wrapped to `width`, without the last optional ones where they would be more
    than eight.

    A command to be pasted is never wrapped.
    """
    kept = list(lines)
    while True:
        shown = [part for line in kept for part in _shown(line.text, width)]
        beside = sum(len(_shown(line.text, width)) for line in kept if line.beside)
        optional = [place for place, line in enumerate(kept) if line.optional]
        if len(shown) - beside <= MOST_LINES or not optional:
            return shown
        del kept[optional[-1]]


def _shown(text: str, width: int) -> list[str]:
    return [text] if text.startswith(_NEXT) else wrapped(text, width)


def next_line(command: str) -> Line:
    """Return the line with the next command to try."""
    return Line(_NEXT + command)


def title_of(plan: ChainPlan) -> str:
    """Return a plan's network and boards, and changed keys of its cluster, in a few words."""
    devices = [plan.cluster.board(device).name for device in range(plan.devices)]
    board = devices[0] if len(set(devices)) == 1 else "boards"
    replicas = plan.data_parallel.replicas
    chains = f"{replicas:,} x {plan.devices:,}" if plan.devices > 1 else f"{replicas:,} parallel"
    changed = ", ".join(f"{key} = {value}" for key, value in (plan.config.changes or {}).items())
    count = chains if replicas > 1 else f"{plan.devices:,}"
    return f"{plan.network.name} on {count} {board}{changed and f' with {changed}'}"


def rate_line(plan: ChainPlan, images_per_s: float, missing_bytes: int, values: str = "") -> Line:
    """Return the line with the rate, and at which `values` of constants it stands (`at_values`)."""
    rate = f"{number(images_per_s)} {plan.network.sample_noun}s/s{ignored(missing_bytes)}"
    return Line(f"{title_of(plan)}: {rate}{';' if missing_bytes and values else ''}{values}")


def epoch_line(
    plan: ChainPlan, samples: int, time_ps: int, missing_bytes: int, *, optional: bool = False
) -> Line:
    """Return the line with the time for an epoch of `samples` samples."""
    counted = plural(samples, plan.network.sample_noun)
    return Line(f"epoch of {counted}: {format_time_ps(time_ps)}{ignored(missing_bytes)}", optional)


def outcome_line(
    epochs: int,
    planned: int,
    train_loss: float,
    test_accuracy: float | None,
    test_loss: float = math.nan,
) -> Line:
    """Return how well a network has been trained in so many of the planned epochs: by
    `test_accuracy`, a fraction, or by the test's loss where nothing is right or wrong; None and NaN
    if nothing was tested.
    """
    tested = "" if math.isnan(test_loss) else f"test loss {test_loss:.4f}, "
    if test_accuracy is not None and not math.isnan(test_accuracy):
        tested = f"test accuracy {100 * test_accuracy:.2f} %, "
    count = f"{epochs:,} of " if epochs < planned else ""
    after = f"{count}{planned:,} epoch{'s' * (planned != 1)}"
    return Line(f"{tested}train loss {train_loss:.4f} after {after}")


def bits_line(test: float, ngrams: NgramBits) -> Line:
    """Return the bits per character of a network on the test part of a text, and those of the
    simplest models.
    """
    return Line(
        f"bits per character: {test:.3f}; unigram model {ngrams.unigram:.3f}, bigram model"
        f" {ngrams.bigram:.3f} (add-one smoothing)"
    )


def memory_line(plan: ChainPlan, missing_bytes: int) -> Line:
    """Return the verdict whether all has a place in memory."""
    balanced = sum(
        formats_of(block.part, plan.cluster.storage).weight_bytes(block.weights)
        for block in plan.timing.blocks
    )
    costs = _memory_costs(plan) if balanced or any(plan.off_chip_bytes) else ""
    return Line(
        memory_verdict(missing_bytes, plan.off_chip_bytes, balanced)
        + ("" if missing_bytes else costs)
        + _recomputed(plan)
    )


def _recomputed(plan: ChainPlan) -> str:
    """Return what B, or R, computes again; nothing where all features are kept."""
    layers = () if plan.stages is None else plan.stages.recomputed
    if not layers:
        return ""
    count, every = len(layers), len(plan.network.layers)
    said = "all layers" if count == every else f"{count} of {plural(every, 'layer')}"
    by = "by R" if plan.config.schedule.recomputes else "in B"
    return f"; features of {said} are computed again {by}"


def memory_verdict(
    missing_bytes: int, off_chip_bytes: Sequence[int], balanced_bytes: int = 0
) -> str:
    """Return whether all has a place, and what is off chip on which of the boards, and on other
    boards.
    """
    if missing_bytes:
        return f"memory: does not fit, {mebibytes(missing_bytes)} missing; times ignore this"
    said = [f"{format_bytes(balanced_bytes)} of it on other boards"] if balanced_bytes else []
    if any(off_chip_bytes):
        boards = len(off_chip_bytes)
        where = f" on {sum(map(bool, off_chip_bytes))} of {boards} boards" if boards > 1 else ""
        said.append(f"{format_bytes(sum(off_chip_bytes))} off chip{where}")
    return "memory: fits, " + ", ".join(said) if said else "memory: fits on chip"


def _memory_costs(plan: ChainPlan) -> str:
    """Return the rate that no placement of data can beat, after a semicolon; empty if that is the
    rate reached.
    """
    exchange_ps = max((load.sample_ps for load in exchange_loads(plan)), default=1)
    bound, reached = (
        number(plan.data_parallel.replicas * 1e12 / max(exchange_ps, ps))
        for ps in (plan.bound_ps, plan.timing.interval_ps)
    )
    never_drained = " and no draining" if plan.config.schedule.drains else ""
    at_most = f"; with all on chip{never_drained}: at most {bound} {plan.network.sample_noun}s/s"
    return at_most if plan.bound_ps and bound != reached else ""


def weights_line(plan: ChainPlan) -> Line:
    """Return how old the weights are that samples use."""
    schedule = plan.config.schedule
    if schedule.drains:
        return Line(f"weights: every sample uses the newest weights ({schedule.name})")
    stale = [staleness.stale_samples for staleness in plan.steady.staleness]
    late = max(max(staleness.forward) for staleness in plan.steady.staleness)
    if not late:
        return Line(
            f"weights: every sample uses the newest weights ({schedule.name}, batch {plan.batch})"
        )
    range_of = f"{min(stale)} to {max(stale)}" if min(stale) != max(stale) else str(stale[0])
    ages = f"{late:,} updates" if late > 1 else "one update"
    use = "uses" if range_of == "1" else "use"
    return Line(
        f"weights: {range_of} of {plural(plan.batch, 'sample')} in a mini-batch {use} weights up to"
        f" {ages} old"
    )


_GROUPS = {
    "board.off_chip": "memory",
    "board.memory": "memory",
    "link.": "links",
    "network.": "network",
}
"""What constants are of, by how their keys begin; other constants of boards are of engines."""
_CLASS_WORDS = {
    "assumed": "assumed",
    "data sheet": "by data sheet",
    "fitted": "fitted to a paper",
    "report": "by a build's report",
    "measured": "measured",
}
"""Classes, the least certain first."""
_ALL = 0.995


def range_lines(answer: AnswerRange | None, shown: Callable[[float], str] = number) -> list[Line]:
    """Return the lines of a range; none without one. `shown` writes a rate, or what is written in
    its place.
    """
    if answer is None:
        return []
    low, high = shown(answer.low), shown(answer.high)
    timed = (
        f", by {answer.draws} draws of the timing" if answer.by_timing and answer.classes else ""
    )
    grounds = class_words(answer.classes)
    lines = [f"range: 90 % from {low} to {high}{timed}{'; ' if grounds else ''}{grounds}"]
    if answer.first is not None and answer.first[1] > 0:
        key, share = answer.first
        lines.append(
            f"measure first: {key} ({'all' if share >= _ALL else percent(share)} of the width)"
        )
    return [Line(text, beside=True) for text in lines]


def choice_text(
    names: Sequence[str], best_share: float, best: str = "best", separator: str = ", "
) -> str:
    """Return in what share of draws the first of some names is the `best`, and which others it
    cannot be distinguished from.
    """
    alike = f"not distinguishable: {separator.join(names)}; " if len(names) > 1 else ""
    return f"choice: {alike}{best} in {percent(best_share)} of draws"


def at_values(answer: AnswerRange | None) -> str:
    """Return at which values of the constants an answer stands that has a range, with a blank
    before it.

    It is that of the values in files, and no middle of its range: what a data sheet promises is
    seldom reached.
    """
    if answer is None or answer.low == answer.high:
        return ""
    return (
        " at measured values"
        if {*answer.classes.values()} == {"measured"}
        else " at data-sheet values"
    )


def class_words(classes: Mapping[str, str]) -> str:
    """Return of what class memory, links and engines are, as text; of several, the least
    certain.
    """
    order = list(_CLASS_WORDS)
    groups: dict[str, str] = {}
    for key, kind in classes.items():
        group = next((name for begin, name in _GROUPS.items() if key.startswith(begin)), "engines")
        groups[group] = min(kind, groups.get(group, kind), key=order.index)
    sequence = [*dict.fromkeys(_GROUPS.values()), "engines"]
    return ", ".join(
        f"{group} {_CLASS_WORDS[groups[group]]}" for group in sequence if group in groups
    )


def logic_lines(plan: ChainPlan) -> list[Line]:
    """Return whether LUTs are too few, which times ignore, and a line on the multipliers of each
    kind of board.

    They take no room of the first screen.
    """
    short = lut_words(plan)
    texts = [f"logic: {short}"] if short else []
    boards = (plan.cluster.board(device) for device in range(plan.devices))
    return [Line(text, beside=True) for text in (*texts, *multiplier_texts(boards))]


def multiplier_texts(boards: Iterable[Board]) -> list[str]:
    """Return a line for each kind of FPGA: multipliers of a DSP, on what grounds, and what real
    ones take; and on how many boards buffers leave engines less.
    """
    kinds: dict[tuple[object, ...], list[Fpga]] = {}
    for board in boards:
        if isinstance(board, Fpga):
            kinds.setdefault((board.name, board.classes, board.budget is None), []).append(board)
    return [*dict.fromkeys(_of_kind(alike) for alike in kinds.values())]


def _of_kind(boards: Sequence[Fpga]) -> str:
    counts = [sum(rate.count for rate in dict.fromkeys(one.shared.rates)) for one in boards]
    most, fewer = max(counts), sum(count < max(counts) for count in counts)
    text = _of_board(boards[counts.index(most)])
    if not fewer:
        return text
    have = "has" if fewer == 1 else "have"
    return f"{text}; {fewer} of {plural(len(boards), 'board')} {have} fewer, {min(counts)} at least"


def _of_board(board: Fpga) -> str:
    rates = [*dict.fromkeys(board.shared.rates)]
    return _built(board, rates) if board.budget is not None else _counted(board, rates)


def _built(board: Fpga, rates: Sequence[MultiplierRate]) -> str:
    """Return how many multipliers a board is built of, what they reach, who says so, and which
    class has most.
    """
    known = {peak.kind: peak for peak in peaks(board)}
    used = [known[rate.kind] for rate in rates]
    counts = ", ".join(
        f"{peak.multipliers:,} {peak.kind} multipliers of {peak.size}" for peak in used
    )
    rate = " or ".join(f"{peak.gflops:,.0f} of {peak.full_gflops:,.0f} GFLOP/s" for peak in used)
    origins = ", ".join(dict.fromkeys(peak.origin for peak in used))
    most = max(known.values(), key=lambda peak: peak.multipliers)
    ratio = most.multipliers / max(peak.multipliers for peak in used)
    more = f"; {most.kind} has {ratio:.2g} times as many" if ratio > 1 else ""
    joined = "together " if len(used) > 1 else ""
    return (
        f"engines of {board.name}: {joined}{counts} at {board.clock_mhz:.0f} MHz, {rate};"
        f" {origins}{more}"
    )


def _counted(board: Fpga, rates: Sequence[MultiplierRate]) -> str:
    """Return what is counted of a board whose multipliers are not built, and what built ones
    take.
    """
    kind = board.dsp_type or "DSP"
    counted = ", ".join(
        f"{_count(rate.per_dsp)} {rate.kind} on a {kind}, {rate.lut} LUTs each" for rate in rates
    )
    caveats = [text for rate in rates if (text := _caveat(board, rate, alone=len(rates) == 1))]
    return "; ".join(
        [f"multipliers of {board.name}: {counted}, {_grounds(board, rates)}", *caveats]
    )


def _count(per_dsp: Fraction) -> str:
    return f"{float(per_dsp):g}"


def _grounds(board: Fpga, rates: Sequence[MultiplierRate]) -> str:
    if board.rates:
        return "by its `multipliers`"
    if all(rate.kind == "fp32" for rate in rates):
        return "as papers count"
    if board.dsp_type:
        return "as papers count by its `dsp_type`, LUTs assumed"
    return "assumed, without `dsp_type` and `multipliers`"


def _caveat(board: Fpga, rate: MultiplierRate, *, alone: bool) -> str:
    """Return what a built multiply-accumulate takes, where fewer fit than are counted; empty where
    as many do.
    """
    built = board.built_rate(rate.kind)
    if built is None:
        return "" if board.rates or rate.kind != "fp32" else "a built one takes several DSPs"
    if built.per_dsp >= rate.per_dsp:
        return ""
    text = f"a built one takes {float(built.dsp):.3g} DSPs and {built.lut:,} LUTs"
    most = f": the board has room for {built.count:,}, not {board.multipliers:,}"
    return text + most * alone


def lut_words(plan: ChainPlan) -> str:
    """Return that boards have fewer LUTs than engines and buffers need; empty where they
    suffice.
    """
    short = plan.short_of_luts
    return f"too few look-up tables on {plural(len(short), 'device')}" if short else ""


_PATH_WORDS = {
    DataPath.PARTIAL_ACTIVATIONS: "partial activations",
    DataPath.INPUT_ERRORS: "sums of input errors",
    DataPath.PARAMETER_GRADIENTS: "gradients of balanced parameters",
    DataPath.ACTIVATIONS: "activations",
    DataPath.OUTPUT_ERRORS: "output errors",
    DataPath.PARAMETERS: "balanced parameters",
}


def wide_lines(plan: ChainPlan) -> list[Line]:
    """Return which share of the fullest direction's bytes stays in fp32, and why; nothing if all
    does.
    """
    if plan.config.precision.is_single or plan.stages is not None:
        return []
    routes = plan.timing.routes
    directions = [(*hop, routes.streams(hop)) for hop in routes.carried]
    sizes = []
    for _, _, streams in directions:
        sizes.append(sum(stream.sample_bytes for stream in streams))
    if not any(sizes):
        return []
    sender, receiver, streams = directions[sizes.index(max(sizes))]
    wide: Counter[DataPath] = Counter()
    for stream in streams:
        if stream.single_bytes:
            wide[stream.path] += stream.single_bytes
    share = percent(sum(wide.values()) / max(sizes))
    what = " and ".join(_PATH_WORDS[path] for path, _ in wide.most_common())
    where = f"{sender} to {receiver}"
    said = f"{share} of its bytes stay fp32{': ' + what if what else ''}"
    return [Line(f"fullest link, {where}: {max(sizes) / 1e3:,.1f} kB/sample; {said}")]
