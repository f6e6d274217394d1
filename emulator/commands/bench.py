"""`emuchain bench`: emuchain's speed on this machine, compared with the machine's peak and with PyTorch."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from ...launch import launcher_rank
from ..bench.shapes import BATCHES, KINDS, LISTS, STEPS, UNITS
from ..common import InputError
from .frame.kernels import FORM_SETTING, resume_collector
from .frame.named import NETWORK, WORD, FileGroup

if TYPE_CHECKING:
    from ..bench.chain import Setting
    from ..bench.figures import Pace, Sheet


_FEWEST_RUNS = 7  # for a median that a few bad moments do not move
_MOST_RUNS, _MOST_RANKS = 1000, 1024


def _number(flag: str, text: str, default: int | None = None, least: int = 1, most: int | None = None) -> Any:
    kind, shown = click.IntRange(least, most), default is not None
    return click.option(flag, type=kind, default=default, show_default=shown, metavar="N", help=text)


def _runs(text: str) -> Any:
    return _number("--runs", text, _FEWEST_RUNS, _FEWEST_RUNS, _MOST_RUNS)


def _printed(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option("--markdown", "as_markdown", is_flag=True, help="Print tables in Markdown.")(command)
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)


def _output(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--no-torch", is_flag=True, help="Measure emuchain only.")(_printed(command))


def _form(command: Callable[..., Any]) -> Callable[..., Any]:
    text = f"Form of the micro-kernel, like {FORM_SETTING}.  [default: this processor's]"
    return click.option("--form", type=WORD, metavar="NAME", help=text)(command)


@click.group("bench", cls=FileGroup)
def bench() -> None:
    """Measure speed on this machine, compared with PyTorch if it is installed."""
    resume_collector()
    if launcher_rank() is not None:
        raise InputError(
            "`emuchain bench` was started by an MPI launcher; start it without one; it starts its own ranks"
        )


@bench.command()
@click.option(
    "--list",
    "lists",
    multiple=True,
    type=click.Choice(list(LISTS)),
    help="Layers to measure; may be given several times.  [default: all lists]",
)
@_runs("Number of timings of each phase; short phases are timed more often.")
@_form
@_output
def kernels(
    lists: tuple[str, ...], runs: int, form: str | None, no_torch: bool, as_json: bool, as_markdown: bool
) -> None:
    """Measure the speed of every layer: forward, errors back, gradients.

    The convolutions of VGG-16 and AlexNet: GFLOP/s, share of the measured multiply-add peak, and ratio to PyTorch. One
    thread each, interleaved; medians.
    """
    check_output(as_json, as_markdown)
    if form is not None:
        choose_form(form)
    from ..bench.figures import NO_TORCH, Pace, describe_host, host_line
    from ..bench.kernels import KERNEL_NOTES, kernel_answer, kernel_sheet, measure, summarise, summary_sheet
    from ..bench.sides import load_torch, torch_is_installed

    torch, pace = load_torch() if not no_torch and torch_is_installed() else None, Pace(runs)
    host = describe_host(None if torch is None else torch.__version__)
    rows = []
    for row in measure(lists or tuple(LISTS), pace, torch):
        tell(f"{row.list}: measured {row.phase} of {row.layer} of {row.network}")
        rows.append(row)
    summary = summarise(rows)
    if as_json:
        print_rows(host, pace, rows, summary)
        return
    answer([*kernel_answer(rows), host_line(host)])
    show(summary_sheet(summary), as_markdown)
    for name, group in itertools.groupby(rows, key=lambda row: row.list):
        show(kernel_sheet(name, list(group)), as_markdown)
    note(KERNEL_NOTES + ("" if torch else f" {NO_TORCH}"))


@bench.command()
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Layers to measure.  [default: both]")
@click.option(
    "--units",
    multiple=True,
    type=click.IntRange(1, 8192),
    metavar="N",
    help=f"Units, and as many inputs.  [default: {', '.join(map(str, UNITS))}]",
)
@click.option(
    "--batch",
    "batches",
    multiple=True,
    type=click.IntRange(1, 4096),
    metavar="N",
    help=f"Samples of a mini-batch.  [default: {', '.join(map(str, BATCHES))}]",
)
@_number("--steps", "Time steps.", STEPS, most=4096)
@_runs("Number of timings of each layer; short ones are timed more often.")
@_form
@_output
def recurrent(
    kinds: tuple[str, ...],
    units: tuple[int, ...],
    batches: tuple[int, ...],
    steps: int,
    runs: int,
    form: str | None,
    no_torch: bool,
    as_json: bool,
    as_markdown: bool,
) -> None:
    """Measure training steps of LSTM and GRU layers.

    Forward, and backward with all gradients, against PyTorch's nn.LSTM and nn.GRU. One thread each, interleaved;
    medians, and their geometric means for few samples and for many.
    """
    check_output(as_json, as_markdown)
    if form is not None:
        choose_form(form)
    from ..bench.figures import NO_TORCH, Pace, describe_host, host_line
    from ..bench.recurrent import RECURRENT_NOTES, measure, recurrent_answer, recurrent_sheet, summarise
    from ..bench.shapes import layers
    from ..bench.sides import load_torch, torch_is_installed

    torch, pace = load_torch() if not no_torch and torch_is_installed() else None, Pace(runs)
    measured = layers(kinds or KINDS, units or UNITS, batches or BATCHES, steps)
    host = describe_host(None if torch is None else torch.__version__)
    rows = []
    for row in measure(measured, pace, torch):
        tell(f"measured {row.kind} of {row.units} units, batch {row.batch}")
        rows.append(row)
    summary = summarise(rows)
    if as_json:
        print_rows(host, pace, rows, summary)
        return
    answer([*recurrent_answer(summary, rows), host_line(host)])
    for kind, group in itertools.groupby(rows, key=lambda row: row.kind):
        show(recurrent_sheet(kind, list(group)), as_markdown)
    note(RECURRENT_NOTES + ("" if torch else f" {NO_TORCH}"))


@bench.command()
@_runs("Number of timings of each shape; short ones are timed more often.")
@_form
@_output
def attention(runs: int, form: str | None, no_torch: bool, as_json: bool, as_markdown: bool) -> None:
    """Measure attention, forward and back.

    Shapes of a small GPT, GPT-2, BERT and ViT, against PyTorch's scaled_dot_product_attention. One thread each,
    interleaved; medians.
    """
    check_output(as_json, as_markdown)
    if form is not None:
        choose_form(form)
    from ..bench import attention as benchmark
    from ..bench.figures import NO_TORCH, Pace, describe_host, host_line
    from ..bench.shapes import ATTENTION
    from ..bench.sides import load_torch, torch_is_installed

    torch, pace = load_torch() if not no_torch and torch_is_installed() else None, Pace(runs)
    host, rows = describe_host(None if torch is None else torch.__version__), []
    for row in benchmark.measure(ATTENTION, pace, torch):
        tell(f"measured {row.phase} of {row.batch} x {row.tokens} tokens")
        rows.append(row)
    summary = benchmark.summarise(rows)
    if as_json:
        print_rows(host, pace, rows, summary)
        return
    answer([*benchmark.attention_answer(summary, rows), host_line(host)])
    show(benchmark.attention_sheet(rows), as_markdown)
    note(benchmark.ATTENTION_NOTES + ("" if torch else f" {NO_TORCH}"))


@bench.command()
@click.option(
    "--network",
    type=NETWORK,
    default="vgg16-cifar",
    show_default=True,
    metavar="WORD",
    help="A network for 3x32x32 images in ten classes.",
)
@_number("--devices", "Emulated FPGAs.", 8)
@_number("--ranks", "Ranks that emulate them.  [default: one for each core]", most=_MOST_RANKS)
@_number("--batch", "Samples of a mini-batch.", 128, most=10_000)
@_number("--micro-batch", "Samples computed in one block.", 16, most=10_000)
@_runs("Number of timings of each side.")
@_number("--threads", "PyTorch's threads.  [default: one for each core]", most=_MOST_RANKS)
@_output
def chain(no_torch: bool, as_json: bool, as_markdown: bool, **given: Any) -> None:
    """Measure speed and memory of the whole chain.

    `emuchain train` with the `fpdeep` schedule on the built-in data set, against plain PyTorch training of the same
    network on the same cores, in turns; medians.
    """
    check_output(as_json, as_markdown)
    from ...launch import usable_cores
    from ..bench.chain import Setting

    cores = usable_cores()
    given["ranks"] = given["ranks"] or min(cores, given["devices"])
    given["threads"] = given["threads"] or cores
    run_chain(Setting(**given), not no_torch, as_json, as_markdown)


@bench.command("simulate")
@_number("--runs", "Number of timings of each case.", 3, most=_MOST_RUNS)
@_printed
@click.option("--curve", is_flag=True, help="Measure whole commands instead, on up to 10,000 boards, once each.")
def simulation(runs: int, as_json: bool, as_markdown: bool, curve: bool) -> None:
    """Measure the cost of `emuchain simulate`.

    VGG-16 at ImageNet size on 1 to 1,024 devices, with 64 to 4,096 samples, and on smaller images: seconds, and the
    cost of each device and each row. Medians.

    With --curve, seconds and memory of whole commands with what they print: VGG-16 on 64 to 10,000 boards, recurrent
    layers, and schedules of up to 1,024 stages.
    """
    check_output(as_json, as_markdown)
    if curve:
        _measure_curve(as_json, as_markdown)
        return
    from ..bench.figures import describe_host, host_line
    from ..bench.simulate import SIMULATION_NOTES, measure, simulation_answer, simulation_sheet

    tell("measuring simulations …")
    host, costs = describe_host(None), list(measure(runs))
    if as_json:
        report = {"host": host, "runs": runs}
        print(json.dumps(report | {"rows": [fields_of(cost, "device_plan_ms", "row_ns") for cost in costs]}))
        return
    answer([*simulation_answer(costs), host_line(host)])
    show(simulation_sheet(costs), as_markdown)
    note(SIMULATION_NOTES)


def _measure_curve(as_json: bool, as_markdown: bool) -> None:
    from ..bench.figures import describe_host, host_line
    from ..bench.simulate import CURVE_NOTES, curve_sheet, measure_commands

    tell("measuring whole commands …")
    host, measured = describe_host(None), list(measure_commands())
    if as_json:
        print(json.dumps({"host": host, "curve": [fields_of(row, "board_ms") for row in measured]}))
        return
    answer([f"{len(measured)} commands were measured", host_line(host)])
    show(curve_sheet(measured), as_markdown)
    note(CURVE_NOTES)


@bench.command("codec")
@_number("--mebibytes", "Size of the values.", 16, most=1024)
@click.option(
    "--bound", type=click.IntRange(-127, 0), default=-10, show_default=True, metavar="E", help="Error bound 2^E."
)
@_runs("Number of timings of each side.")
@_printed
def gradient_codec(mebibytes: int, bound: int, runs: int, as_json: bool, as_markdown: bool) -> None:
    """Measure the speed of the INCEPTIONN codec.

    Compression and decompression of gradient-like numbers: GB/s, and ratios to memcpy, zfp and blosc2. One thread
    against one thread, interleaved; medians.
    """
    check_output(as_json, as_markdown)
    from ..bench.codec import CODEC_NOTES, codec_answer, codec_sheet, measure, versions
    from ..bench.figures import Pace, describe_host, host_line

    host, peers = describe_host(None), versions()
    tell("measuring codecs …")
    rows = measure(mebibytes << 18, bound, Pace(runs))
    if as_json:
        report = {"host": host, "peers": peers, "mebibytes": mebibytes, "bound": bound, "runs": runs}
        print(json.dumps(report | {"rows": [fields_of(row, "meets_bar") for row in rows]}))
        return
    answer([*codec_answer(rows), host_line(host)])
    show(codec_sheet(rows, mebibytes, bound), as_markdown)
    missing = [name for name, version in peers.items() if version is None]
    absent = f" Not installed, so not measured: {', '.join(missing)} (`pip install 'emuchain[bench]'`)."
    note(CODEC_NOTES + (absent if missing else ""))


@bench.command("precision")
@_number("--mebibytes", "Size of the values; 1 fits in most caches of a core.", 1, most=1024)
@_runs("Number of timings of each side.")
@_output
def quantisers(mebibytes: int, runs: int, no_torch: bool, as_json: bool, as_markdown: bool) -> None:
    """Measure the speed of rounding to each number format.

    GB/s of float32, and ratios to ml_dtypes, PyTorch and microxcaling. One thread each, interleaved; medians.
    """
    check_output(as_json, as_markdown)
    from ..bench.figures import Pace, describe_host, host_line
    from ..bench.precision import NEED_TORCH, PRECISION_NOTES, measure, precision_answer, precision_sheet, versions

    host, peers = describe_host(None), versions()
    measured = [name for name, version in peers.items() if version and not (no_torch and name in NEED_TORCH)]
    tell("measuring quantisers …")
    rows = list(measure(mebibytes << 18, Pace(runs), measured))
    if as_json:
        setting = {"mebibytes": mebibytes, "runs": runs, "rows": [fields_of(row, "meets_bar") for row in rows]}
        print(json.dumps({"host": host, "peers": peers, **setting}))
        return
    answer([*precision_answer(rows), host_line(host)])
    show(precision_sheet(rows, mebibytes), as_markdown)
    note(PRECISION_NOTES.format(missing=", ".join(name for name in peers if name not in measured) or "nothing"))


def run_chain(setting: Setting, with_torch: bool, as_json: bool, as_markdown: bool) -> None:
    """Measure the chain and report."""
    from ..bench.chain import CHAIN_NOTES, chain_answer, chain_sheet, compare, ours_command, torch_command
    from ..bench.figures import NO_TORCH, describe_host, host_line
    from ..bench.sides import torch_is_installed, torch_version

    with_torch = with_torch and torch_is_installed()
    tell(f"training {setting.network} in turns …")
    comparison = compare(setting, with_torch)
    host = describe_host(torch_version() if with_torch else None)
    if as_json:
        commands = {"command": ours_command(setting), "torch_command": torch_command(setting) if with_torch else None}
        report = {"host": host, **commands, **dataclasses.asdict(setting), **dataclasses.asdict(comparison)}
        print(json.dumps(report))
        return
    answer([*chain_answer(setting, comparison), host_line(host)])
    show(chain_sheet(setting, comparison), as_markdown)
    note(CHAIN_NOTES + ("" if with_torch else f" {NO_TORCH}"))


def choose_form(name: str) -> None:
    """Set the micro-kernel's form, before any kernel is loaded.

    Raises:
        InputError: there is no such form, or another one is configured or in use already.
    """
    before = os.environ.get(FORM_SETTING)
    if before and before != name:
        raise InputError(f"--form {name}: but {FORM_SETTING} is {before}; unset it, or leave out the flag")
    os.environ[FORM_SETTING] = name
    try:
        from ...kernels.form import FORM, FORMS
    except ValueError as error:
        raise InputError(f"--form: {error}") from None
    if name not in FORMS:
        raise InputError(f"--form {name}: unknown form; choose from {', '.join(FORMS)}")
    if FORM.name != name:
        raise InputError(f"--form {name}: the kernels are loaded as {FORM.name} already; start a new process")


def print_rows(host: dict[str, Any], pace: Pace, rows: Sequence[Any], summary: Sequence[Any]) -> None:
    """Print measured layers, and their means, as JSON."""
    report: dict[str, Any] = {"host": host, "threads": 1, "runs": pace.rounds}
    report["rows"] = [dataclasses.asdict(row) for row in rows]
    report["summary"] = [dataclasses.asdict(row) for row in summary]
    print(json.dumps(report))


def fields_of(row: Any, *properties: str) -> dict[str, Any]:
    """Return the fields of a row, and some of its properties, by name."""
    return dataclasses.asdict(row) | {name: getattr(row, name) for name in properties}


def check_output(as_json: bool, as_markdown: bool) -> None:
    """Raise InputError if both kinds of output are asked for."""
    if as_json and as_markdown:
        raise InputError("--json and --markdown: give one of them")


def tell(text: str) -> None:
    """Print a line of progress where a terminal shows it; nothing moves, for that would disturb what is measured."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def answer(lines: list[str]) -> None:
    """Print the answer, which comes first."""
    from ..view import print_answer

    print_answer(lines)


def note(text: str) -> None:
    """Print what the figures mean, below the sheets."""
    from ..view import say

    print()
    say(text)


def show(sheet: Sheet, as_markdown: bool) -> None:
    """Print a sheet."""
    if as_markdown:
        print(f"\n{sheet.markdown()}")
    else:
        sheet.draw()
