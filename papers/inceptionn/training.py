"""Training under compression: Figs. 4, 5, 13 and 14, Table III; from measured runs (runs.py).

ImageNet is out of reach, so the convolutional networks have small stand-ins on CIFAR-10. Accuracies
are those with the default codec, whose errors stay below the bound; widths and ratios are those of
the paper's plain rule by range, if no other one is in force, of runs that learn.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from ...comm.exchange import BINS, LEAST_EXPONENT
from ...emulator.common import Mean
from ..claim import Measured, NoEvidence, choice
from ..constants import chosen
from .evidence import NETWORKS
from .runs import Loss, accuracy, decide, learning_runs_of, lost, runs_of, shown

RULE = choice("inceptionn", "codec.rule")
STAND_INS = {
    "alexnet": "quick-cifar",
    "hdc": "hdc",
    "resnet50": "resnet8-cifar",
    "vgg16": "vgg11-cifar",
}
CUT = ("alexnet", "hdc", "resnet50")
"""Networks that were also trained with truncated gradients and weights."""
EXPONENTS = (-10, -8, -6)
TRUNCATED = (16, 22, 24)
MORE_EPOCHS = 2
"""Epochs that runs with a codec go on for."""
WITHIN = 0.5
"""Accuracies that differ by up to half a point count as equal."""
_STANDS = 5
"""Points of accuracy that truncation may cost a network that is said to stand it."""

Figures = TypeVar("Figures")


def loss(name: str, gradients: str = "none", weights: str = "none", later: int = 0) -> Loss:
    """Return the accuracy lost against no codec, `later` epochs after the schedule's end.

    Raises:
        NoEvidence: there are no such runs, or without a codec the network does not learn.
    """
    network = STAND_INS[name]
    return lost(network, learning_runs_of(network), runs_of(network, gradients, weights), later)


def by_network(measure: Callable[[str], Figures]) -> tuple[dict[str, Figures], list[str]]:
    """Return the measure of each stand-in that has evidence, and why the others have none."""
    measures, missing = {}, []
    for name in NETWORKS:
        try:
            measures[STAND_INS[name]] = measure(name)
        except NoEvidence as error:
            missing.append(str(error))
    return measures, missing


def _with_evidence(measure: Callable[[str], Figures]) -> tuple[dict[str, Figures], str]:
    """Return the measure of each stand-in that has evidence, and a note that names them, and the
    others.
    """
    measures, missing = by_network(measure)
    if not measures:
        raise NoEvidence(" ".join(missing))
    return measures, "; ".join(
        [", ".join(measures), *(reason.removesuffix(".") for reason in missing)]
    )


def _coded(codec: str | None, exponent: int) -> str:
    """Return how runs name a codec, by default that of the rule in force."""
    return f"{codec or RULE.alternatives[chosen(RULE)]}:{exponent}"


def widths(name: str, exponent: int, codec: str | None = None) -> list[float]:
    """Return the shares of values of 2, 10, 18 and 34 bits in percent, the mean over epochs and all
    seeds.

    Raises:
        NoEvidence: no seed learns, so that these are not gradients of training, or runs have no
            widths.
    """
    gradients = _coded(codec, exponent)
    learning_runs_of(STAND_INS[name], gradients)
    epochs = [shares for run in runs_of(STAND_INS[name], gradients) for shares in run.widths]
    if not epochs:
        raise NoEvidence(f"The runs of {STAND_INS[name]} with {gradients} have no widths.")
    return [100 * statistics.mean(shares) for shares in zip(*epochs, strict=True)]


def plain_widths(name: str, exponent: int) -> list[float]:
    """Return `widths` under the rule by range for gradients of training without a codec, before
    they are summed.
    """
    histograms = [
        histogram for run in learning_runs_of(STAND_INS[name]) for histogram in run.histograms
    ]
    if not histograms:
        raise NoEvidence(f"The runs of {STAND_INS[name]} have no histograms.")
    shares = [range_widths(signs, exponent) for signs in histograms]
    return [statistics.mean(column) for column in zip(*shares, strict=True)]


def range_widths(signs: Sequence[Sequence[int]], exponent: int) -> list[float]:
    """Return the shares of 2, 10, 18 and 34 bits in percent, by the rule of range, of a histogram
    of both signs.

    Its bins are those of comm/exchange/nic.py.
    """
    counts = [sum(both) for both in zip(*signs, strict=True)]
    # Bin 0 has the zeros, so that values from 2^e on begin at bin 1 + e - LEAST_EXPONENT.
    smallest, middle = (1 + power - LEAST_EXPONENT for power in (exponent, -(-exponent // 2)))
    parts = counts[:smallest], counts[smallest:middle], counts[middle:-1], counts[-1:]
    return [100 * sum(part) / sum(counts) for part in parts]


def ratio(name: str, exponent: int, codec: str | None = None) -> float:
    """Return the compression ratio: 32 bits over the mean of 2, 10, 18 and 34 bits."""
    return _ratio_of(widths(name, exponent, codec))


def ratio_over_seeds(name: str, exponent: int, codec: str | None = None) -> Mean:
    """Return the mean of the seeds' compression ratios, each over all epochs."""
    learning = learning_runs_of(STAND_INS[name], _coded(codec, exponent))
    ratios = []
    for run in learning:
        percent = [100 * statistics.mean(shares) for shares in zip(*run.widths, strict=True)]
        ratios.append(_ratio_of(percent))
    return Mean.over(ratios)


def _ratio_of(percent: list[float]) -> float:
    # 32 bits over the mean width, whose shares are in percent.
    return 3200 / sum(share * bits for share, bits in zip(percent, (2, 10, 18, 34), strict=True))


def extra_epochs(name: str) -> int:
    """Return the extra epochs until a bound of 2^-10 is within half a point of no codec, in means
    over the seeds.

    If it never is, return one more than were tried.
    """
    later = range(MORE_EPOCHS + 1)
    return next(
        (e for e in later if loss(name, "inceptionn:-10", later=e).points <= WITHIN), len(later)
    )


def stages(name: str) -> list[list[int]]:
    """Return histograms of gradients, both signs together, early, midway and at the end of training
    without a codec.
    """
    histograms = learning_runs_of(STAND_INS[name])[0].histograms
    if not histograms:
        raise NoEvidence(f"The runs of {STAND_INS[name]} have no histograms.")
    chosen = (histograms[0], histograms[len(histograms) // 2], histograms[-1])
    return [list(map(sum, zip(*signs, strict=True))) for signs in chosen]


def _as_text(name: str, measure: Callable[[str], list[float]]) -> str:
    try:
        return ", ".join(f"{share:.1f}" for share in measure(name))
    except NoEvidence:
        return "no run that learns"


def table_3(name: str, exponent: int) -> Measured:
    """Measure a row of Table III."""
    by_bound = _as_text(name, partial(widths, exponent=exponent, codec="inceptionn"))
    plain = _as_text(name, partial(plain_widths, exponent=exponent))
    how = (
        f"{STAND_INS[name]}; by the bound {by_bound}; by the range, of training without a codec"
        f" {plain}"
    )
    return Measured(widths(name, exponent), how)


def weights_or_gradients() -> Measured:
    """Count the pairs in which truncated weights do not lose more than truncated gradients.

    Raises:
        NoEvidence: of a pair it is within the standard errors which of both loses more.
    """
    losses = {
        f"{STAND_INS[name]} {bits}b": lost(
            STAND_INS[name],
            runs_of(STAND_INS[name], f"truncate:{bits}"),
            runs_of(STAND_INS[name], "none", f"truncate:{bits}"),
        )
        for name in ("alexnet", "hdc")
        for bits in TRUNCATED
    }
    surely_less = [lost_more.is_surely(0) for lost_more in losses.values()]
    if None in surely_less and True not in surely_less:
        raise NoEvidence(
            f"Which of both loses more is within the seeds' standard errors: {shown(losses)}."
        )
    how = f"of {len(losses)} pairs, weights do not lose more; points more: {shown(losses)}"
    return Measured(surely_less.count(True), how)


def weights_of_complex() -> Measured:
    """Measure what a complex network loses with truncated weights."""
    losses = {STAND_INS["alexnet"]: loss("alexnet", weights="truncate:24")}
    [lost_accuracy] = losses.values()
    if lost_accuracy.is_surely(10) is None:
        raise NoEvidence(
            "Whether it is more than 10 points is within the seeds' standard errors:"
            f" {shown(losses)}."
        )
    return Measured(lost_accuracy.points, f"points, 24 bits of weights: {shown(losses)}")


def large_gradients() -> Measured:
    """Count the gradients of magnitude 1 or more."""
    counts = stages("alexnet")
    # The last bin is that of 1 and more; ten before it begin at 2^-10.
    small = ", ".join(
        f"{100 * (1 - sum(histogram[BINS - 11 :]) / sum(histogram)):.1f}" for histogram in counts
    )
    how = f"gradients of 1 and more, early, middle, final; below 2^-10: {small} %"
    return Measured([histogram[BINS - 1] for histogram in counts], how)


def _losses(gradients: str, bound: float, later: int = 0) -> tuple[dict[str, Loss], str]:
    """Return what each network loses, where the seeds tell whether it is at most `bound`, and a
    note.
    """
    losses, missing = by_network(partial(loss, gradients=gradients, later=later))
    decide(losses, bound, missing)
    return losses, "; ".join([f"points: {shown(losses)}", *missing])


def epochs_needed() -> Measured:
    """Measure the extra epochs that each network needs."""
    losses, how = _losses("inceptionn:-10", WITHIN, MORE_EPOCHS)
    tried = {STAND_INS[name]: extra_epochs(name) for name in NETWORKS if STAND_INS[name] in losses}
    return Measured(
        list(tried.values()),
        f"until within half a point: {shown(tried)}; {MORE_EPOCHS} epochs later {how}",
    )


def drop() -> Measured:
    """Measure the most accuracy lost at a bound of 2^-10 without extra epochs."""
    losses, how = _losses("inceptionn:-10", 1.5)
    return Measured(max(lost_accuracy.points for lost_accuracy in losses.values()), how)


def loss_at_6() -> Measured:
    """Measure the accuracy lost at a bound of 2^-6."""
    losses, how = _losses("inceptionn:-6", 2)
    return Measured([lost_accuracy.points for lost_accuracy in losses.values()], how)


def _cut(name: str) -> dict[str, Loss]:
    return {f"{STAND_INS[name]} {bits}b": loss(name, f"truncate:{bits}") for bits in TRUNCATED}


def stand_truncation() -> Measured:
    """Find the networks that lose no more than 5 points under any truncation of gradients."""
    standing: list[str] = []
    all_losses: dict[str, Loss] = {}
    for name in CUT:
        losses = _cut(name)
        decide(losses, _STANDS)
        all_losses |= losses
        standing += [name] * all(
            lost_accuracy.points <= _STANDS for lost_accuracy in losses.values()
        )
    return Measured(standing, f"stand it; points lost: {shown(all_losses)}")


def worst_of_resnet() -> Measured:
    """Measure the most that truncation costs ResNet's stand-in."""
    losses, whole = _cut("resnet50"), accuracy(STAND_INS["resnet50"])
    return Measured(
        max(lost_accuracy.points for lost_accuracy in losses.values()),
        f"points, of {whole} %: {shown(losses)}",
    )


def _by_bound(exponent: int) -> str:
    ratios, _ = by_network(partial(ratio, exponent=exponent, codec="inceptionn"))
    return f"by the bound {', '.join(f'{mean_ratio:.1f}' for mean_ratio in ratios.values())}"


def largest_ratio() -> Measured:
    """Measure the largest compression ratio."""
    ratios, who = _with_evidence(lambda name: max(ratio(name, exponent) for exponent in EXPONENTS))
    return Measured(max(ratios.values()), f"of 2^-10, 2^-8, 2^-6: {who}")


def ratios_at_6() -> Measured:
    """Measure the compression ratios at a bound of 2^-6."""
    ratios, who = _with_evidence(partial(ratio, exponent=-6))
    return Measured(list(ratios.values()), f"{who}; {_by_bound(-6)}")


def ratio_range() -> Measured:
    """Measure the least and the largest ratio at a bound of 2^-10."""
    ratios, who = _with_evidence(partial(ratio, exponent=-10))
    return Measured([min(ratios.values()), max(ratios.values())], f"{who}; {_by_bound(-10)}")


def ratio_rises() -> Measured:
    """Count the networks whose ratio falls with a larger bound."""
    ratios, who = _with_evidence(lambda name: [ratio(name, exponent) for exponent in EXPONENTS])
    return Measured(
        sum(row != sorted(row) for row in ratios.values()), f"networks whose ratio falls: {who}"
    )


def two_bits() -> Measured:
    """Measure the shares of values of two bits at a bound of 2^-6."""
    shares_by_network, who = _with_evidence(partial(widths, exponent=-6))
    return Measured([shares[0] for shares in shares_by_network.values()], who)


def two_bits_range() -> Measured:
    """Measure the least and the largest of these shares at a bound of 2^-10."""
    shares_by_network, who = _with_evidence(partial(widths, exponent=-10))
    shares = [shares[0] for shares in shares_by_network.values()]
    return Measured([min(shares), max(shares)], who)
