"""Numbers with units as text, and rates."""

from collections.abc import Sequence

IMAGENET_IMAGES = 1_281_167
"""Training images of ImageNet, the epoch that hours are given for unless another one is asked for."""

_TIME_UNITS = (("ps", 1), ("ns", 10**3), ("us", 10**6), ("ms", 10**9), ("s", 10**12))
_BYTE_UNITS = (("B", 1), ("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30), ("TiB", 2**40))
_MINUTE = 60 * 10**12


def format_time_ps(ps: int) -> str:
    """Return a time in ps as text in a suitable unit, to three digits: `12.3 ms`; from two minutes `2 min 05 s`."""
    if ps < 0:
        return "-" + format_time_ps(-ps)
    if ps >= 2 * _MINUTE:
        minutes, seconds = divmod((ps + 10**12 // 2) // 10**12, 60)
        if minutes < 120:
            return f"{minutes} min {seconds:02d} s"
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes:02d} min"
    return _scaled(ps, _TIME_UNITS, 1000)


def format_bytes(count: int) -> str:
    """Return a number of bytes as text in a suitable binary unit, to three digits: `512 B`, `1.50 MiB`."""
    if count < 0:
        return "-" + format_bytes(-count)
    return _scaled(count, _BYTE_UNITS, 1024)


def _scaled(value: int, units: tuple[tuple[str, int], ...], step: int) -> str:
    for unit, size in units:
        number = value / size
        # The next unit starts where this one would round up to a full step: 999 999 ns are 1.00 ms.
        if round(number) < step or unit == units[-1][0]:
            break
    if size == 1:
        return f"{value} {unit}"
    if number < 9.995:
        return f"{number:.2f} {unit}"
    if number < 99.95:
        return f"{number:.1f} {unit}"
    return f"{number:.0f} {unit}"


def percent(share: float) -> str:
    """Return a share as text in percent."""
    return f"{100 * share:,.1f} %"


def number(value: float) -> str:
    """Return a number as text: to four digits, and to the whole from 1,000 on, with separators."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun."""
    ending = "es" if noun.endswith(("tch", "ss")) else "s"
    return f"{count:,} {noun}{ending * (count != 1)}"


def either(words: Sequence[str]) -> str:
    """Return words of which one holds: `a`, `a or b`, `a, b or c`."""
    *firsts, last = words
    return f"{', '.join(firsts)} or {last}" if firsts else last


def an(noun: str) -> str:
    """Return a noun with its article."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def gops(operations: int, period_ps: float) -> float:
    """Return the rate in GOP/s (10^9 operations a second) of `operations` in a period."""
    return 1000 * operations / period_ps


def gbps(count: int, period_ps: float) -> float:
    """Return the rate in Gb/s (10^9 bits a second) of `count` bytes in a period."""
    return 8000 * count / period_ps
