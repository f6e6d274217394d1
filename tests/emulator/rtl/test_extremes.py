"""Numbers at the ends of formats, on whole devices: what the RTL has of a format, its largest and
its least numbers and what is beyond them, shows in the weights.
"""

import dataclasses
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from emuchain.emulator.data import Dataset
from emuchain.emulator.device import epoch_order
from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.rtl import Rtl, RtlResult, simulate_rtl
from emuchain.emulator.rtl.formats import literal
from emuchain.emulator.run import trained_mini_batches
from emuchain.kernels.number import BlockGrid, Rounding

from .chains import RELU, Mutation, built, cluster, conv, fc, network, plan

SMALL = network([2, 3, 2], conv(6, 1), RELU, conv(2, 2), RELU, fc(2))


class Stimuli(NamedTuple):
    """A run: its images reach up to 1 in the first mini-batch, and up to `top` in the second one,
    for which the learning rate may have made weights large. With the seed, the loss stays finite.
    """

    learning_rate: float
    top: float
    loss_scale: int
    seed: int


ENDS: dict[str, dict[Stimuli, tuple[tuple[str, str], ...]]] = {
    "bf16": {
        Stimuli(1, 3e38, 1, 5): (("activations", "overflows"),),
        Stimuli(0.05, 3e38, 1024, 8): (("weights", "overflows"),),
        Stimuli(1e10, 1e-20, 1 << 24, 20): (("errors", "fraction_bits"),),
    },
    "fp16": {
        Stimuli(0.05, 6e4, 1024, 2): (("activations", "overflows"),),
        Stimuli(100, 6e4, 1, 18): (("weights", "overflows"),),
        Stimuli(100, 100, 1024, 14): (("errors", "overflows"),),
        Stimuli(0.05, 100, 1, 7): (("errors", "least_exponent"),),
        Stimuli(0.05, 100, 1024, 10): (("weights", "least_exponent"),),
    },
    "fp8": {
        Stimuli(1, 100, 1 << 20, 12): (("errors", "largest"), ("weights", "least_exponent")),
        Stimuli(0.05, 448, 1, 18): (("activations", "largest"),),
        Stimuli(10, 448, 1, 18): (("weights", "largest"), ("weights", "overflows")),
        Stimuli(1, 448, 1 << 20, 2): (("activations", "overflows"),),
    },
    "int8": {
        Stimuli(1, 0.01, 16, 10): (("errors", "largest"), ("weights", "largest")),
        Stimuli(10, 0.01, 1, 12): (("errors", "overflows"),),
        Stimuli(1, 1, 1024, 5): (("activations", "largest"),),
    },
    "mxint8": {
        Stimuli(1, 1, 1024, 3): (("activations", "largest"),),
    },
}
"""By format, and by runs that reach ends of it: kinds of numbers, and fields of their formats."""


def plan_of(name: str, stimuli: Stimuli) -> ChainPlan:
    return plan(
        SMALL,
        cluster(60),
        1,
        batch=4,
        precision=f"{name} loss_scale={stimuli.loss_scale}",
        learning_rate=stimuli.learning_rate,
        seed=stimuli.seed,
    )


def images_of(of: ChainPlan, stimuli: Stimuli) -> Dataset:
    """Images of all magnitudes up to the largest one, in the order of training."""
    rng, samples = np.random.default_rng(stimuli.seed), of.config.samples
    assert samples is not None
    images = rng.uniform(-1, 1, (samples, *of.network.input)).astype(np.float32)
    images *= np.float32(2.0) ** rng.integers(-12, 1, images.shape).astype(np.float32)
    images[epoch_order(stimuli.seed, 0, samples)[samples // 2 :]] *= np.float32(stimuli.top)
    labels = rng.integers(0, 2, samples)
    return Dataset("extreme", images, labels, images[:0], labels[:0], ("a", "b"))


def mutation_of(of: ChainPlan, kind: str, field: str) -> Mutation:
    """A device that has another number in a field of a format."""
    precision = of.config.precision
    number = precision.format(kind)
    grid = number.grid
    assert grid is not None
    element = grid.element if isinstance(grid, BlockGrid) else grid
    step = 2.0 ** (np.frexp(element.largest)[1] - 1 - element.fraction_bits)
    changed = {
        "overflows": not element.overflows,
        "largest": element.largest - step,
        "least_exponent": element.least_exponent + 1,
        "fraction_bits": element.fraction_bits - 1,
    }[field]
    other = dataclasses.replace(element, **{field: changed})
    if isinstance(grid, BlockGrid):
        other = dataclasses.replace(grid, element=other)
    mutant = dataclasses.replace(number, grid=other)
    name = f"localparam formats::format_t {kind.upper()} = "
    texts = [name + literal(one, Rounding.EVEN) for one in (number, mutant)]
    return Mutation("device0", *texts)


def result_of(of: ChainPlan, stimuli: Stimuli, libraries: list[Path]) -> RtlResult:
    with np.errstate(all="ignore"):
        return simulate_rtl(Rtl.of(of), libraries, trained_mini_batches(of, images_of(of, stimuli)))


@pytest.mark.slow
@pytest.mark.usefixtures("verilator")
@pytest.mark.parametrize("name", ENDS)
def test_numbers_at_ends_are_right(name: str, tmp_path: Path) -> None:
    """Infinite and saturated ones, the least ones, and what is none."""
    plans = {stimuli: plan_of(name, stimuli) for stimuli in ENDS[name]}
    libraries = built(Rtl.of(next(iter(plans.values()))), tmp_path)
    for stimuli, of in plans.items():
        assert result_of(of, stimuli, libraries).is_right, stimuli


MUTATIONS = [
    (name, stimuli, *field)
    for name, ends in ENDS.items()
    for stimuli, fields in ends.items()
    for field in fields
]


@pytest.mark.sampled(5)
@pytest.mark.slow
@pytest.mark.usefixtures("verilator")
@pytest.mark.parametrize(("name", "stimuli", "kind", "field"), MUTATIONS)
def test_each_field_of_a_format_is_seen(
    name: str, stimuli: Stimuli, kind: str, field: str, tmp_path: Path
) -> None:
    of = plan_of(name, stimuli)
    libraries = built(Rtl.of(of), tmp_path, mutation_of(of, kind, field))
    assert any(result_of(of, stimuli, libraries).wrong.values())
