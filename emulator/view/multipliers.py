"""What boards multiply with, beside an answer: multipliers of a DSP, their LUTs, and what real ones take."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from ..cluster import DSP_TYPES, Board, Fpga, MultiplierRate
from ..common import plural
from ..plan import ChainPlan
from .answer import Line


def logic_lines(plan: ChainPlan) -> list[Line]:
    """Return whether LUTs are too few, which times ignore, and a line on the multipliers of each kind of board.

    They take no room of the first screen.
    """
    short = lut_words(plan)
    texts = [f"logic: {short}"] if short else []
    boards = (plan.cluster.board(device) for device in range(plan.devices))
    return [Line(text, beside=True) for text in (*texts, *multiplier_texts(boards))]


def multiplier_texts(boards: Iterable[Board]) -> list[str]:
    """Return a line for each kind of FPGA: multipliers of a DSP, on what grounds, and what real ones take."""
    kinds = dict.fromkeys(board for board in boards if isinstance(board, Fpga))
    return [*dict.fromkeys(map(_of_board, kinds))]


def _of_board(board: Fpga) -> str:
    kind = board.dsp_type or "DSP"
    rates = [*dict.fromkeys(board.shared.rates)]
    counted = ", ".join(f"{_count(rate.per_dsp)} {rate.kind} on a {kind}, {rate.lut} LUTs each" for rate in rates)
    caveats = [text for rate in rates if (text := _caveat(board, rate, alone=len(rates) == 1))]
    return "; ".join([f"multipliers of {board.name}: {counted}, {_grounds(board, rates)}", *caveats])


def _count(per_dsp: Fraction) -> str:
    return f"{float(per_dsp):g}"


def _grounds(board: Fpga, rates: list[MultiplierRate]) -> str:
    if board.rates:
        return "by its `multipliers`"
    if all(rate.kind == "fp32" for rate in rates):
        return "as papers count, without `multipliers`"
    if board.dsp_type:
        return "by its `dsp_type`, LUTs assumed"
    return "assumed, without `dsp_type` and `multipliers`"


def _caveat(board: Fpga, rate: MultiplierRate, *, alone: bool) -> str:
    """Return what a real multiply-accumulate takes, where it is more than is counted; empty where it is not."""
    known = DSP_TYPES[board.dsp_type] if board.dsp_type else None
    if known is None:
        return "" if board.rates or rate.kind != "fp32" else "a real one takes 2 to 3 DSP48"
    if rate.kind not in known.real:
        adds = rate.kind == "fp32" and not (known.has_fp32 or board.rates)
        return "a real one adds in LUTs, which these do not count" if adds else ""
    real = known.real[rate.kind]
    if board.rates and rate.per_dsp * real.fewest_dsp <= 1:
        return ""
    text = f"a real one takes {real.dsps} and some {real.lut:,} LUTs"
    if not alone or board.lut is None:
        return text
    most = board.lut // real.lut
    if real.fewest_dsp:
        most = min(most, board.usable_dsps // real.fewest_dsp)
    return f"{text}: at most {most:,} on the board, not {board.multipliers:,}" if most < board.multipliers else text


def lut_words(plan: ChainPlan) -> str:
    """Return that boards have fewer LUTs than engines and buffers need; empty where they suffice."""
    short = plan.short_of_luts
    return f"too few look-up tables on {plural(len(short), 'device')}" if short else ""
