"""The first screen of a command: at most eight lines that answer the question, before any table; and how sure it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..common import format_bytes, format_time_ps, number, plural
from ..data import NgramBits
from ..plan import ChainPlan, exchange_loads
from .terminal import ignored, mebibytes, screen_width, wrapped

MOST_LINES = 8

_NEXT = "next: "


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of an answer; an optional one is left out where there is no room, in which one `beside` takes none."""

    text: str
    optional: bool = False
    beside: bool = False


def print_answer(lines: Sequence[Line | str]) -> None:
    """Print an answer in at most eight lines of the screen, without those of its range."""
    given = [line if isinstance(line, Line) else Line(line) for line in lines]
    print("\n".join(first_screen(given, screen_width())))


def first_screen(lines: Sequence[Line], width: int) -> list[str]:
    """Return the lines wrapped to `width`, without the last optional ones where they would be more than eight.

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


def epoch_line(plan: ChainPlan, samples: int, time_ps: int, missing_bytes: int, *, optional: bool = False) -> Line:
    """Return the line with the time for an epoch of `samples` samples."""
    counted = plural(samples, plan.network.sample_noun)
    return Line(f"epoch of {counted}: {format_time_ps(time_ps)}{ignored(missing_bytes)}", optional)


def outcome_line(epochs: int, train_loss: float, test_accuracy: float | None) -> Line:
    """Return how well a network has been trained; `test_accuracy` is a fraction, or None if nothing was tested."""
    tested = "" if test_accuracy is None else f"test accuracy {100 * test_accuracy:.2f} %, "
    return Line(f"{tested}train loss {train_loss:.4f} after {epochs:,} epoch{'s' * (epochs != 1)}")


def bits_line(test: float, ngrams: NgramBits) -> Line:
    """Return the bits per character of a network on the test part of a text, and those of the simplest models."""
    return Line(
        f"bits per character: {test:.3f}; unigram model {ngrams.unigram:.3f}, bigram model {ngrams.bigram:.3f} (add-one"
        " smoothing)"
    )


def memory_line(plan: ChainPlan, missing_bytes: int) -> Line:
    """Return the verdict whether all has a place in memory."""
    balanced = sum(plan.cluster.storage.weight_bytes(block.weights) for block in plan.timing.blocks)
    costs = _memory_costs(plan) if balanced or any(plan.off_chip_bytes) else ""
    return Line(memory_verdict(missing_bytes, plan.off_chip_bytes, balanced) + ("" if missing_bytes else costs))


def memory_verdict(missing_bytes: int, off_chip_bytes: Sequence[int], balanced_bytes: int = 0) -> str:
    """Return whether all has a place, and what is off chip on which of the boards, and on other boards."""
    if missing_bytes:
        return f"memory: does not fit, {mebibytes(missing_bytes)} missing; times ignore this"
    said = [f"{format_bytes(balanced_bytes)} of it on other boards"] if balanced_bytes else []
    if any(off_chip_bytes):
        boards = len(off_chip_bytes)
        where = f" on {sum(map(bool, off_chip_bytes))} of {boards} boards" if boards > 1 else ""
        said.append(f"{format_bytes(sum(off_chip_bytes))} off chip{where}")
    return "memory: fits, " + ", ".join(said) if said else "memory: fits on chip"


def _memory_costs(plan: ChainPlan) -> str:
    """Return the rate that no placement of data can beat, after a semicolon; empty if that is the rate reached."""
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
        return Line(f"weights: every sample uses the newest weights ({schedule.name}, batch {plan.batch})")
    range_of = f"{min(stale)} to {max(stale)}" if min(stale) != max(stale) else str(stale[0])
    ages = f"{late:,} updates" if late > 1 else "one update"
    use = "uses" if range_of == "1" else "use"
    return Line(f"weights: {range_of} of {plural(plan.batch, 'sample')} in a mini-batch {use} weights up to {ages} old")
