"""Windows that slide over maps: their strides, pads, and how many fit."""

from collections.abc import Sequence

Pair = int | tuple[int, int]
MOST_PLACES = 255  # in the window of a max-pool: a place is one byte


def pair(value: Pair) -> tuple[int, int]:
    """Return `value` as a pair (rows, columns); an int counts for both."""
    if isinstance(value, (tuple, list)):
        rows, columns = value
        return int(rows), int(columns)
    return int(value), int(value)


def extent(kernel: Pair, dilation: Pair) -> tuple[int, int]:
    """Return the (rows, columns) that a kernel reaches over, whose places are `dilation` apart."""
    (kh, kw), (dh, dw) = pair(kernel), pair(dilation)
    return (kh - 1) * dh + 1, (kw - 1) * dw + 1


def output_size(
    size: Sequence[int], kernel: Pair, *, stride: Pair, pad: Pair, ceil: bool = False
) -> tuple[int, int]:
    """Return the number of windows that fit in a map of `size` (rows, columns), down and across.

    With `ceil`, the last one may reach beyond the padding, but does not begin there. Raise
    ValueError where `kernel`, `stride` or `pad` is not valid, or no window fits.
    """
    (h, w), (kh, kw), (sh, sw), (ph, pw) = size, pair(kernel), pair(stride), pair(pad)
    rows, columns = _fit(h, kh, sh, ph, "rows"), _fit(w, kw, sw, pw, "columns")
    if ceil:
        return _raised(rows, h, kh, sh, ph), _raised(columns, w, kw, sw, pw)
    return rows, columns


def _raised(count: int, size: int, kernel: int, stride: int, pad: int) -> int:
    """Return the number of windows with the one beyond those that fit, if it is needed."""
    is_whole = (size + 2 * pad - kernel) % stride == 0
    return count + (not is_whole and count * stride < size + pad)


def _fit(size: int, kernel: int, stride: int, pad: int, name: str) -> int:
    if kernel < 1 or stride < 1:
        raise ValueError(
            f"kernel and stride must be at least 1, not {kernel} and {stride} ({name})"
        )
    if not 0 <= pad < kernel:
        raise ValueError(
            f"pad must be at least 0 and less than the kernel {kernel}, not {pad} ({name})"
        )
    if size + 2 * pad < kernel:
        raise ValueError(f"a kernel of {kernel} does not fit in {size} {name} with pad {pad}")
    return (size + 2 * pad - kernel) // stride + 1
