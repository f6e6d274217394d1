"""`emuchain cluster`: the boards and clusters that come with emuchain, and the constants of one,
with their ranges.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import click

from ..common import InputError, number
from .frame.command import SET, Answer, FileCommand, json_option, set_option, set_words
from .frame.kernels import starting
from .frame.named import CLUSTER, WORD, switch

if TYPE_CHECKING:
    from ..cluster import Board, Cluster, ConstantRange, Fpga, Gain

_Constant: TypeAlias = "tuple[str, str, Any, ConstantRange | None]"
"""Whose it is, its key, its value, and its range if it is a number."""

_NO_CONSTANTS = ("type", "name", "source", "kind", "count", "uncertainty", "next_measurement")


@click.command(cls=FileCommand)
@click.argument("name", type=CLUSTER, required=False)
@switch("--toml", "Print its TOML description.", "as_toml")
@click.option(
    "--precision",
    "formats",
    type=WORD,
    metavar="A,B,...",
    help="Say what its engines make in these formats, and how many times as much as in the first.",
)
@json_option("Print its constants as one JSON object.")
@set_option
def cluster(
    name: str | None, as_toml: bool, formats: str | None, changes: dict[str, object]
) -> Answer | None:
    """Show a cluster's boards, links and constants, or list the clusters and boards that come with
    emuchain.

    NAME is a cluster or a board of the list, or a TOML file of a cluster. Between `low` and `high`
    a constant lies in nine of ten cases.
    """
    if name is None and (as_toml or changes or formats):
        _need_name()
    with starting():
        from ..cluster import board_types, clusters, load_cluster

    if name is None:
        return Answer(_list_all, _need_name)
    if name in board_types() and name not in clusters():
        if changes:
            raise InputError(
                f"--set {next(iter(changes))}: {name} is a board; give a cluster, or its TOML file"
            )
        return _of_board(name, as_toml, formats)
    loaded = load_cluster(name, changes, blame=SET)
    if as_toml:
        print(_as_toml(loaded), end="")
        return None
    engines = _engines(loaded, formats)
    return Answer(
        lambda: _show(name, loaded, changes, engines),
        lambda: _as_json(name, loaded, changes) | _engines_as_json(engines),
    )


def _need_name() -> NoReturn:
    raise click.UsageError("--toml, --json, --precision and --set need the NAME of a cluster")


def _as_toml(loaded: Cluster) -> str:
    """Return a cluster's TOML description: that of its file, or with changed keys a line for each
    of its tables.
    """
    from ..common import decoded, read_description, toml_value

    if not loaded.text.startswith("{"):
        return decoded(loaded.text.encode())
    return "".join(
        f"{key} = {toml_value(value)}\n" for key, value in read_description(loaded.text).items()
    )


def _list_all() -> None:
    """Print tables of the clusters and of the boards that come with emuchain."""
    from ..cluster import (
        board_keys,
        board_types,
        clusters,
        link_keys,
        link_kinds,
        load_cluster,
    )
    from ..common import format_time_ps
    from ..view import next_line, print_answer, table

    known = clusters()
    print_answer(
        [
            (
                f"{len(known)} clusters and {len(board_types())} boards come with emuchain; your"
                " own are TOML files"
            ),
            next_line("emuchain cluster vc709"),
        ]
    )
    rows = []
    for name in known:
        loaded = load_cluster(name)
        boards = ", ".join(dict.fromkeys(board.name for board in loaded.boards))
        rows.append(
            [
                name,
                boards,
                f"{loaded.link.bandwidth_gbps:g}",
                format_time_ps(loaded.link.latency_ps),
            ]
        )
    table(
        "Clusters", ["name", "boards", "Gb/s", "latency"], rows, left=("boards",), names=("name",)
    )
    rows = []
    for kind in board_types():
        keys = board_keys(kind)
        cells = (
            keys.get(key)
            for key in ("clock_mhz", "dsp", "on_chip_memory_kbit", "off_chip_gbytes_per_s")
        )
        shown = ["-" if cell is None else f"{cell:,}" for cell in cells]
        rows.append([kind, *shown, _fp32_gflops(kind), keys.get("source", "")])
    columns = ["board", "MHz", "DSPs", "on chip, kbit", "off chip, GB/s", "fp32 GFLOP/s", "source"]
    table("Boards", columns, rows, left=("source",), names=("board",))
    rows = []
    for kind in link_kinds():
        keys = link_keys(kind)
        rows.append(
            [kind, f"{keys['bandwidth_gbps']:g}", f"{keys['latency_ns']:,g}", keys["source"]]
        )
    table(
        "Links", ["kind", "Gb/s", "latency, ns", "source"], rows, left=("source",), names=("kind",)
    )


def _fp32_gflops(kind: str) -> str:
    """Return what a large product in single precision reaches on a board, `counted` where its
    multipliers are not built.
    """
    from ..cluster import Fpga, peaks

    board = _alone(kind).boards[0]
    if not isinstance(board, Fpga):
        return "-"
    single, *_ = peaks(board)
    return number(single.gflops) + (" counted" if board.budget is None else "")


def _alone(kind: str) -> Cluster:
    """Return a cluster of a board that comes with emuchain."""
    from ..cluster import load_cluster

    links = {"bandwidth_gbps": 1, "latency_ns": 0}
    return load_cluster({"name": kind, "boards": [{"type": kind}], "links": links})


def _show(
    name: str, loaded: Cluster, changes: dict[str, object], engines: Sequence[_Engines]
) -> None:
    """Print a cluster: what it is, then a row for each constant."""
    from ..common import format_time_ps, plural
    from ..view import next_line, print_answer

    boards = list(dict.fromkeys(board.name for board in loaded.boards))
    link, replicas = loaded.link, loaded.interconnect
    dearest_ps = link.cost.most_ps
    constants = list(_constants(name, loaded, changes))
    uncertain = sum(constant is not None and not constant.is_exact for *_, constant in constants)
    print_answer(
        [
            f"{loaded.name}: {_kind(loaded)}{', '.join(boards)}",
            *(f"board {board.name}: {_peak_words(board)}" for board in _fpgas(loaded)),
            *map(_engine_words, engines),
            f"links: {link.bandwidth_gbps:g} Gb/s and {format_time_ps(link.latency_ps)} to each"
            " neighbour"
            + ("" if loaded.is_chain else f", {loaded.topology.name}")
            + (f"; up to {format_time_ps(dearest_ps)} beside a message" if dearest_ps else ""),
            (
                f"between replicas: {replicas.bandwidth_mbps / 1000:g} Gb/s and"
                f" {format_time_ps(replicas.latency_ps)}, {replicas.topology.name}"
            ),
            f"uncertain: {plural(uncertain, 'constant')} of {len(constants)}",
            next_line(_next(name, loaded, changes)),
        ]
    )
    _constants_table(loaded.name, constants)


def _next(name: str, loaded: Cluster, changes: dict[str, object]) -> str:
    """Return a command to try on a cluster: a GPU, alone or with an FPGA, is for recurrent
    layers.
    """
    from ..cluster import LSTM_UNITS, Gpu

    fpgas = _fpgas(loaded)
    if not isinstance(loaded.boards[0], Gpu):
        words = ["plan", "vgg16-cifar", "--devices", "8"]
    elif fpgas:
        holds_lstm = fpgas[0].pe_array is None or fpgas[0].pe_array.units >= LSTM_UNITS
        words = [
            "simulate",
            "lstm-rows" if holds_lstm else "gru-rows",
            "--schedule",
            "farnn",
            "--devices",
            "2",
        ]
    else:
        words = ["simulate", "lstm-rows", "--schedule", "gpu-standard", "--devices", "1"]
    return shlex.join(["emuchain", *words, "--cluster", name, *set_words(changes)])


def _kind(loaded: Cluster) -> str:
    """Return what the boards of a cluster are, before their names."""
    from ..cluster import Gpu

    if not isinstance(loaded.boards[0], Gpu):
        return "a chain, whose last board is repeated as often as a run has devices: "
    return "a GPU with an FPGA: " if _fpgas(loaded) else "a GPU alone: "


def _of_board(kind: str, as_toml: bool, formats: str | None) -> Answer | None:
    """Return a board that comes with emuchain, on a chain of its own; or print its description."""
    from ..cluster import board_files, board_keys
    from ..common import read_text

    if as_toml:
        print("".join(map(read_text, board_files(kind))), end="")
        return None
    keys = board_keys(kind)
    loaded = _alone(kind)
    constants = list(_of_table(loaded.boards[0].name, "board", keys, loaded, 0))
    engines = _engines(loaded, formats)
    return Answer(
        lambda: _show_board(kind, keys, loaded, constants, engines),
        lambda: {
            "board": kind,
            "boards": _boards_as_json(loaded),
            "constants": [_entry(*constant) for constant in constants],
            **_engines_as_json(engines),
        },
    )


def _show_board(
    kind: str,
    keys: Mapping[str, Any],
    loaded: Cluster,
    constants: Sequence[_Constant],
    engines: Sequence[_Engines],
) -> None:
    """Print a board: what it is, then a row for each constant."""
    from ..view import next_line, print_answer

    print_answer(
        [
            f"{kind}: a board, {loaded.boards[0].name}; {keys.get('source', 'without a source')}",
            *map(_peak_words, _fpgas(loaded)),
            *map(_engine_words, engines),
            f'a cluster of your own has it as [[boards]] with type = "{kind}"',
            next_line(f"emuchain cluster {kind} --toml"),
        ]
    )
    _constants_table(kind, constants)


def _constants_table(title: str, constants: Sequence[_Constant]) -> None:
    """Print a row for each constant."""
    from ..view import table

    rows = []
    for where, key, value, constant in constants:
        low, high, kind, source = "", "", "", ""
        if constant is not None and not constant.is_exact:
            low, high, kind = (
                f"{constant.low * value:,.6g}",
                f"{constant.high * value:,.6g}",
                constant.kind,
            )
            source = constant.source
        rows.append(
            [
                where,
                key,
                f"{value:,}" if isinstance(value, int | float) else str(value),
                low,
                high,
                kind,
                source,
            ]
        )
    columns = ["of", "constant", "value", "low", "high", "class", "from"]
    table(f"Constants of {title}", columns, rows, left=("from",), names=("of", "constant", "class"))


def _fpgas(loaded: Cluster) -> list[Any]:
    """Return one of each kind of the cluster's FPGAs."""
    from ..cluster import Fpga

    return list({board.name: board for board in loaded.boards if isinstance(board, Fpga)}.values())


def _peak_words(board: Fpga) -> str:
    """Return what a board's multipliers of its widest class reach, and in which range designs
    do.
    """
    from ..cluster import peaks

    widest, *_ = peaks(board)
    count = f"{widest.multipliers:,} multipliers of {widest.kind}"
    if board.budget is None:
        return f"{count}, {number(widest.gflops)} GFLOP/s, {widest.origin}"
    return (
        f"{count}, {widest.size} each at {widest.clock_mhz:.0f} MHz:"
        f" {number(widest.gflops)} GFLOP/s, {number(widest.low)} to {number(widest.high)} in nine of"
        f" ten designs; {widest.origin}"
    )


_Engines: TypeAlias = "tuple[str, Fpga, str, Gain | None]"
"""A precision, a board with engines for it, the first precision, and the gain over that."""


def _engines(loaded: Cluster, formats: str | None) -> list[_Engines]:
    """Return the engines of each FPGA of a cluster in some formats, the first one's first.

    Raises:
        InputError: formats are unknown, or no board has engines.
    """
    if formats is None:
        return []
    from ..cluster import gain
    from ..number import precision_of
    from ..plan import in_precision

    try:
        given = [precision_of(name.strip()) for name in formats.split(",")]
    except ValueError as error:
        raise InputError(f"--precision {formats}: {error}") from None
    if not _fpgas(loaded):
        raise InputError(f"--precision {formats}: {loaded.name} has no FPGA; leave it out")
    first, boards = str(given[0]), _fpgas(in_precision(loaded, given[0]))
    engines: list[_Engines] = []
    for precision in given:
        for board, beside in zip(_fpgas(in_precision(loaded, precision)), boards, strict=True):
            over = None if precision is given[0] else gain(board, beside, precision.added_products)
            engines.append((str(precision), board, first, over))
    return engines


def _engine_words(engines: _Engines) -> str:
    """Return what a board's engines make in a precision, and how many times as much as in the
    first.
    """
    from ..cluster import products_per_cycle

    precision, board, first, over = engines
    made = products_per_cycle(board)
    kinds = " and ".join(dict.fromkeys(rate.kind for rate in board.shared.rates))
    gflops = 2 * made * board.clock_mhz * board.efficiency / 1000
    said = f"{board.name} in {precision}: {made:,.0f} products a cycle of {kinds}, "
    said += f"{number(gflops)} GFLOP/s"
    if over is None:
        return said
    ends = f" ({over.low:.3g} to {over.high:.3g} in nine of ten designs)"
    return f"{said}; {over.times:.3g} times {first}'s{ends if over.low < over.high else ''}"


def _engines_as_json(engines: Sequence[_Engines]) -> dict[str, Any]:
    """Return the same with the names of JSON; nothing without formats."""
    from ..cluster import products_per_cycle

    if not engines:
        return {}
    return {
        "engines": [
            {
                "precision": precision,
                "board": board.name,
                "products_per_cycle": products_per_cycle(board),
                "times": None if over is None else over.times,
                "low": None if over is None else over.low,
                "high": None if over is None else over.high,
            }
            for precision, board, _, over in engines
        ]
    }


def _boards_as_json(loaded: Cluster) -> list[dict[str, Any]]:
    """Return each board's name and peak."""
    return [{"name": board.name, "peak": _peaks_as_json(board)} for board in loaded.boards]


def _peaks_as_json(board: Board) -> dict[str, Any]:
    """Return what a large product reaches on a board, by class of numbers; nothing of a GPU."""
    from ..cluster import Fpga, peaks

    known = peaks(board) if isinstance(board, Fpga) else ()
    return {
        peak.kind: {
            "multipliers": peak.multipliers,
            "dsp_each": peak.dsp_each,
            "clock_mhz": round(peak.clock_mhz, 2),
            "gflops": peak.gflops,
            "low": peak.low,
            "high": peak.high,
            "class": peak.origin,
            "from": peak.source,
        }
        for peak in known
    }


def _constants(name: str, loaded: Cluster, changes: dict[str, object]) -> Iterator[_Constant]:
    """Yield a cluster's constants."""
    from ..cluster import cluster_keys

    described, seen = cluster_keys(name, changes), set[str]()
    for place, board in enumerate(described["boards"]):
        device = sum(table.get("count", 1) for table in described["boards"][:place])
        title = loaded.board(device).name
        if title not in seen:
            yield from _of_table(title, "board", board, loaded, device)
        seen.add(title)
    links = described["links"]
    for table in links if isinstance(links, list) else [links]:
        yield from _of_table("links", "link", table, loaded, 0)
    for kind in ("network", "machine", "resources"):
        yield from _of_table(kind, kind, described.get(kind, {}), loaded, 0)


def _of_table(
    title: str, kind: str, table: Mapping[str, Any], loaded: Cluster, device: int
) -> Iterator[_Constant]:
    for key, value in table.items():
        if key not in _NO_CONSTANTS:
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            yield (
                title,
                f"{kind}.{key}",
                value,
                loaded.range_of(f"{kind}.{key}", device) if is_number else None,
            )


def _as_json(name: str, loaded: Cluster, changes: dict[str, object]) -> dict[str, Any]:
    constants = [_entry(*constant) for constant in _constants(name, loaded, changes)]
    return {
        "cluster": loaded.name,
        "boards": _boards_as_json(loaded),
        "constants": constants,
    }


def _entry(where: str, key: str, value: Any, constant: ConstantRange | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"of": where, "key": key, "value": value}
    if constant is not None:
        entry |= {
            "low": constant.low * value,
            "high": constant.high * value,
            "class": constant.kind,
        }
        entry["from"] = constant.source
    return entry
