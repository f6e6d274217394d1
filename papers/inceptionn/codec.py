"""The codec and its engines' units (sections V, VI-A and VIII-C), on numbers of every magnitude."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...comm.exchange import ring_steps, sent_block
from ...kernels.codec import Codec, Inceptionn
from ..claim import Measured
from .evidence import WORKERS
from .truncation import Truncation

Floats = NDArray[np.float32]

EXPONENT = -10
BOUND = 2.0**EXPONENT
_BURST, _TAG_BITS = 8, 16


@functools.cache
def numbers() -> Floats:
    """Return finite random bit patterns, all powers of two up to 2 with their neighbours, and
    values within ±1.
    """
    random = np.random.default_rng(1)
    patterns = random.integers(0, 2**32, 200_000, np.uint32).view(np.float32)
    powers = (2.0 ** np.arange(-126, 2)).astype(np.float32)
    edges = np.concatenate(
        [powers, np.nextafter(powers, np.float32(0)), np.nextafter(powers, np.float32(4))]
    )
    values = np.concatenate([patterns[np.isfinite(patterns)], edges, -edges])
    return np.concatenate(
        # In all a multiple of eight: whole bursts.
        [values, random.uniform(-1, 1, 8 * 10_000 - len(values) % 8).astype(np.float32)]
    )


def burst_bits(value: float) -> int:
    """Return the bits of a burst of eight such values, with their tags."""
    return _bits([value] * _BURST)


def truncated_ratio(dropped_bits: int) -> float:
    """Return the compression ratio of truncation."""
    return 32 * 1000 / _bits([0.3] * 1000, Truncation(dropped_bits))


def _bits(values: Sequence[float], coding: Codec | None = None) -> int:
    return 8 * len((coding or Inceptionn(EXPONENT)).compress(np.array(values, np.float32)))


def payload_bits(value: float, rule: Codec | None = None) -> int:
    """Return the bits of each of eight such values, without its tag."""
    return (_bits([value] * _BURST, rule) - _TAG_BITS) // _BURST


def _through(values: Floats, coding: Codec) -> Floats:
    return coding.decompress(coding.compress(values), values.size)


def _fixed_point(values: Floats, digits: int) -> Floats:
    """Return Algorithm 3's reconstruction: the sign, and the fraction cut to `digits` digits."""
    size = np.floor(np.abs(values.astype(np.float64)) * 2.0**digits) / 2.0**digits
    return np.copysign(size, values).astype(np.float32)


def _below_one() -> Floats:
    return numbers()[(np.abs(numbers()) < 1) & (np.abs(numbers()) >= BOUND)]


def split() -> Measured:
    """Measure the bits of sign, exponent and mantissa."""
    layout = np.finfo(np.float32)
    return Measured(
        [layout.bits - layout.nexp - layout.nmant, layout.nexp, layout.nmant],
        "of the type that is compressed",
    )


def least_kept() -> Measured:
    """Measure the bits of sign and exponent."""
    layout = np.finfo(np.float32)
    return Measured(layout.bits - layout.nmant, "bits")


def of_large() -> Measured:
    """Count the values of magnitude 1 or more that change; measure the bits of each."""
    large = numbers()[np.abs(numbers()) >= 1]
    large = large[: len(large) // _BURST * _BURST]
    wrong = np.count_nonzero(
        _through(large, Inceptionn(EXPONENT)).view(np.uint32) != large.view(np.uint32)
    )
    return Measured(
        [int(wrong), _bits(large.tolist()) / large.size],
        f"values changed, of {large.size}; bits of each",
    )


def of_small() -> Measured:
    """Measure the payload of the largest values below the bound."""
    below = float(np.nextafter(np.float32(BOUND), np.float32(0)))
    return Measured(
        [payload_bits(below), payload_bits(-below)],
        f"payload bits of the floats next to 2^{EXPONENT}",
    )


def _fractions(rule: Codec) -> int:
    """Return the number of values below 1 that do not decompress to a fraction of 7 or 15
    digits.
    """
    values = _below_one()
    restored = _through(values, rule)
    return int(
        np.count_nonzero(
            (restored != _fixed_point(values, 7)) & (restored != _fixed_point(values, 15))
        )
    )


def middle() -> Measured:
    """Count the values below 1 that do not become a fraction of 7 or 15 digits."""
    wrong = _fractions(Inceptionn(EXPONENT)) + _fractions(Inceptionn(EXPONENT, "range"))
    return Measured(wrong, f"of 2 x {_below_one().size} values: no fraction cut to 7 or 15 digits")


def digits() -> Measured:
    """Measure the digits that remain of a fraction with all digits set."""
    all_ones, by_range = 1 - 2.0**-24, Inceptionn(-12, "range")
    counts = []
    for value in (all_ones * 2.0**-6, all_ones):
        back = _through(np.array([value], np.float32), by_range)[0]
        counts.append(next(digits for digits in range(33) if float(back) * 2.0**digits % 1 == 0))
    return Measured(counts, "of 8 bits, of 16 bits, in addition to the sign; rule by range")


def error() -> Measured:
    """Measure the largest error over the bound."""
    worst = []
    for exponent in (-10, -8, -6):
        for rule in ("bound", "range"):
            restored = _through(
                numbers(), Inceptionn(exponent, "bound" if rule == "bound" else "range")
            )
            with np.errstate(over="ignore"):
                worst.append(
                    float(np.abs(restored.astype(np.float64) - numbers()).max()) / 2.0**exponent
                )
    by_range = ", ".join(f"{ratio:.2f}" for ratio in worst[1::2])
    return Measured(
        worst[::2],
        f"largest error over the bound at 2^-10, 2^-8, 2^-6; by the paper's rule {by_range}",
    )


def back_whole() -> Measured:
    """Measure the decompressed values of 1.5 and of half the bound."""
    restored = _through(np.array([1.5, BOUND / 2], np.float32), Inceptionn(EXPONENT))
    return Measured(restored.tolist(), "of 1.5 and half the bound")


def _groups() -> list[Floats]:
    return list(numbers()[: 1000 * _BURST].reshape(-1, _BURST))


def from_tags() -> Measured:
    """Count the bursts whose length does not match their 16 bits of tags."""
    wrong = 0
    for group in _groups():
        made = Inceptionn(EXPONENT).compress(group)
        tags = int(made[0]) | int(made[1]) << 8
        # The two bits of a tag say whether 0, 1, 2 or 4 bytes follow.
        wrong += len(made) != 2 + sum(
            (0, 1, 2, 4)[tags >> 2 * value & 3] for value in range(_BURST)
        )
    return Measured(wrong, "bursts, of 1000")


def every_hop() -> Measured:
    """Measure the largest error of any worker's sum over the bound, in a ring that compresses each
    message.
    """
    coding, random = Inceptionn(EXPONENT), np.random.default_rng(1)
    gradients = (0.02 * random.standard_normal((WORKERS, WORKERS, 4000))).astype(np.float32)
    held = gradients.copy()
    for step in ring_steps(WORKERS):
        moved = [
            _through(held[worker, sent_block(worker, step, WORKERS)], coding)
            for worker in range(WORKERS)
        ]
        for worker in range(WORKERS):
            block = sent_block((worker - 1) % WORKERS, step, WORKERS)
            held[worker, block] = moved[worker - 1] + (
                held[worker, block] if step < WORKERS else np.float32(0)
            )
    error = np.abs(held.astype(np.float64) - gradients.astype(np.float64).sum(0)).max()
    return Measured(float(error / BOUND), "4 workers: 3 partial sums and one sum are compressed")


def truncated_exponent() -> Measured:
    """Measure the bits that 24b-T keeps, and the values of 1 and 2 after it."""
    restored = _through(np.array([1.0, 2.0], np.float32), Truncation(24))
    return Measured(
        [_bits([0.3] * _BURST, Truncation(24)) // _BURST, *restored.tolist()],
        "bits; 1 and 2 after it",
    )


def formula() -> Measured:
    """Measure the ratios of 10,000 values with the widths of Table III's first rows of AlexNet and
    HDC.
    """
    ratios = []
    for counts in ((7490, 390, 2110, 10), (9200, 650, 150, 0)):
        values = np.repeat(np.array([0.0, 0.5, 0.5 + 2.0**-9, 1.0], np.float32), counts)
        ratios.append(32 * values.size / _bits(values.tolist()))
    return Measured(
        ratios, "shares of 2, 10, 18, 34 bits as in Table III, AlexNet and HDC at 2^-10"
    )
