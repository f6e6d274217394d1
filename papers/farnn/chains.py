"""FARNN's section 5.1: PE chains, vector slices, split cells; and the builds of section 6.1."""

from __future__ import annotations

from ...emulator.cluster import Fpga, PeArray, board_keys
from ...emulator.timing.pair import Cell, RecurrentWork, mvm_cycles, step_cycles, unsplit_cycles
from ..claim import Measure, Measured
from . import runs

_SIZES = (64, 256, 640, 1000, 1024, 1280, 2048)
_PES = (128, 192, 256, 384, 768)
PCIE_BITS, WORD_BITS = 512, 32
"""Section 5.1.2."""
BUILDS = ("farnn-9p-lstm", "farnn-9p-gru", "farnn-13p-lstm", "farnn-13p-gru")


def array(name: str) -> PeArray:
    """Return the MVM units of a cluster's FPGA."""
    board = runs.cluster(name).board(1)
    assert isinstance(board, Fpga) and board.pe_array is not None
    return board.pe_array


def _pe() -> Measured:
    ratios = [mvm_cycles(size, size, 256) * 256 / size**2 for size in (256, 512, 1024)]
    return Measured(ratios, "PEs times cycles over multiply-accumulates: 256, 512 and 1,024 cells on 256 PEs")


def _feed() -> Measured:
    wrong = [size for size in _SIZES if mvm_cycles(256, size, 256) != size]
    return Measured(len(wrong), f"of {len(_SIZES)} lengths, those that take other than N cycles")


def _chains() -> Measured:
    return Measured(PCIE_BITS / WORD_BITS, f"the boards' files have {array('farnn-9p').chains}")


def _per_round() -> Measured:
    wrong = [pes for pes in (array(name) for name in runs.FARNN.values()) if pes.pes != pes.chains * pes.pes_per_chain]
    return Measured(len(wrong), "builds in which a round makes other than W * L values")


def _rounds() -> Measured:
    wrong = [
        (size, pes) for size in _SIZES for pes in _PES if unsplit_cycles(size, size, pes) != size * -(-size // pes)
    ]
    return Measured(len(wrong), f"of {len(_SIZES) * len(_PES)} sizes, those with another number of rounds")


def _slices() -> Measured:
    return Measured(unsplit_cycles(1024, 1024, 256) / 1024, "rounds of 1,024 cycles")


def _words() -> Measured:
    work = RecurrentWork("lstm", Cell.LSTM, 1024, 1024, 1)
    return Measured(step_cycles(work, array("farnn-9p"), backward=False).pe_words, "words of the fullest PE, FARNN-9P")


def _split() -> Measured:
    return Measured(mvm_cycles(1024, 1024, 768), "three PEs an output, for which there is room, would make 1,366")


def _half() -> Measured:
    return Measured((mvm_cycles(1024, 1024, 768) - 1024) / 1024, "cycles of the second round over N")


def _exposed() -> Measured:
    """Measure the cycles of a step beyond R-MVM for LSTM layers with more than 256 cells."""
    exposed = []
    for cells in (512, 1024, 2048):
        cycles = step_cycles(RecurrentWork("lstm", Cell.LSTM, 1, cells, 1), array("farnn-9p"), backward=False)
        exposed.append(cycles.total - cycles.recurrent)
    return Measured(exposed, "cycles of a step beyond R-MVM: 512, 1,024 and 2,048 cells on FARNN-9P")


def _pes() -> Measured:
    pes = {name: array(cluster).pes for (name, cell), cluster in runs.FARNN.items() if cell is Cell.LSTM}
    return Measured(list(pes.values()), f"PEs of a unit for LSTM: {', '.join(pes)}")


def _longer() -> Measured:
    differences = [
        array(runs.FARNN[build, Cell.GRU]).pes_per_chain - array(runs.FARNN[build, Cell.LSTM]).pes_per_chain
        for build in ("9P", "13P", "VS")
    ]
    return Measured(differences, "PEs of a chain for GRU beyond those for LSTM: 9P, 13P, VS")


def _total() -> Measured:
    units = array(runs.LARGE_9P)
    return Measured(units.units * units.pes, "boards/farnn-9p-lstm-8k.toml")


def _scaling() -> Measured:
    clocks = [board_keys(build)["clock_mhz"] for build in BUILDS]
    return Measured([clock - clocks[0] for clock in clocks], "MHz beyond those of the smallest build")


MEASURES: dict[str, Measure] = {
    "farnn-pe": _pe,
    "farnn-feed-cycles": _feed,
    "farnn-chains-w": _chains,
    "farnn-pe-per-round": _per_round,
    "farnn-slices-formula": _rounds,
    "farnn-slices-1024-256": _slices,
    "farnn-weights-per-pe": _words,
    "farnn-step-cycles": _rounds,
    "farnn-split-1024-768-naive": lambda: Measured(unsplit_cycles(1024, 1024, 768)),
    "farnn-split-1024-768-split": _split,
    "farnn-split-halves": _half,
    "farnn-act-latency": lambda: Measured(array("farnn-9p").activation_cycles, "the default of `activation_cycles`"),
    "farnn-act-hidden": _exposed,
    "farnn-pes-per-mvm": _pes,
    "farnn-t2-lstm-shorter": _longer,
    "farnn-pe-count-8k": _total,
    "farnn-slr-scaling": _scaling,
}
