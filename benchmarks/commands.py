"""`emuchain bench`: emuchain's speed on this machine, compared with the machine's peak and with
PyTorch.

The command line finds this file. What a benchmark needs is imported when it runs.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..emulator.commands import FORM_SETTING, NETWORK, WORD, FileGroup, resume_collector
from ..emulator.common import InputError
from ..launch import launcher_rank

if TYPE_CHECKING:
    from types import ModuleType

    from .frame import Report

LISTS = ("vgg-cifar-1", "vgg-cifar-16", "imagenet-1")
_KINDS, _UNITS, _BATCHES, _STEPS = ("lstm", "gru"), (128, 256, 512, 1024), (1, 4, 16, 64), 32
"""What is measured unless flags choose."""
_FEWEST_RUNS = 7  # for a median that a few bad moments do not move
_MOST_RUNS, _MOST_RANKS = 1000, 1024


def _number(
    flag: str, text: str, default: int | None = None, least: int = 1, most: int | None = None
) -> Any:
    kind, shown = click.IntRange(least, most), default is not None
    return click.option(
        flag, type=kind, default=default, show_default=shown, metavar="N", help=text
    )


def _runs(text: str) -> Any:
    return _number("--runs", text, _FEWEST_RUNS, _FEWEST_RUNS, _MOST_RUNS)


def _printed(command: Callable[..., Report]) -> Callable[..., None]:
    """Print the report that a command returns, in the form that is asked for."""

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
    @click.option("--markdown", "as_markdown", is_flag=True, help="Print tables in Markdown.")
    @functools.wraps(command)
    def printing(as_json: bool, as_markdown: bool, **given: Any) -> None:
        if as_json and as_markdown:
            raise InputError("--json and --markdown: give one of them")
        command(**given).print(as_json=as_json, as_markdown=as_markdown)

    return printing


_beside_torch = click.option("--no-torch", is_flag=True, help="Measure emuchain only.")


def _layers(command: Callable[..., Report]) -> Callable[..., None]:
    """Choose the micro-kernel's form, then measure layers beside PyTorch, which the command takes,
    if it is there.
    """

    @click.option(
        "--form",
        type=WORD,
        metavar="NAME",
        help=f"Form of the micro-kernel, like {FORM_SETTING}.  [default: this processor's]",
    )
    @_beside_torch
    @_printed
    @functools.wraps(command)
    def measuring(form: str | None, no_torch: bool, **given: Any) -> Report:
        if form is not None:
            choose_form(form)
        from .frame import is_installed, load_torch

        torch = load_torch() if not no_torch and is_installed("torch") else None
        return command(torch=torch, **given)

    return measuring


@click.group("bench", cls=FileGroup)
def bench() -> None:
    """Measure speed on this machine, compared with PyTorch if it is installed."""
    resume_collector()
    if launcher_rank() is not None:
        raise InputError(
            "`emuchain bench` was started by an MPI launcher; start it without one; it starts its"
            " own ranks"
        )


@bench.command()
@click.option(
    "--list",
    "lists",
    multiple=True,
    type=click.Choice(LISTS),
    help="Layers to measure; may be given several times.  [default: all lists]",
)
@_runs("Number of timings of each phase; short phases are timed more often.")
@_layers
def kernels(torch: ModuleType | None, lists: tuple[str, ...], runs: int) -> Report:
    """Measure the speed of every layer: forward, errors back, gradients.

    The convolutions of VGG-16 and AlexNet: GFLOP/s, share of the measured multiply-add peak, and
    ratio to PyTorch. One thread each, interleaved; medians.
    """
    from .frame import Pace
    from .kernels import report

    return report(lists or LISTS, Pace(runs), torch)


@bench.command()
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(_KINDS),
    help="Layers to measure.  [default: both]",
)
@click.option(
    "--units",
    multiple=True,
    type=click.IntRange(1, 8192),
    metavar="N",
    help=f"Units, and as many inputs.  [default: {', '.join(map(str, _UNITS))}]",
)
@click.option(
    "--batch",
    "batches",
    multiple=True,
    type=click.IntRange(1, 4096),
    metavar="N",
    help=f"Samples of a mini-batch.  [default: {', '.join(map(str, _BATCHES))}]",
)
@_number("--steps", "Time steps.", _STEPS, most=4096)
@_runs("Number of timings of each layer; short ones are timed more often.")
@_layers
def recurrent(
    torch: ModuleType | None,
    kinds: tuple[str, ...],
    units: tuple[int, ...],
    batches: tuple[int, ...],
    steps: int,
    runs: int,
) -> Report:
    """Measure training steps of LSTM and GRU layers.

    Forward, and backward with all gradients, against PyTorch's nn.LSTM and nn.GRU. One thread each,
    interleaved; medians, and their geometric means for few samples and for many.
    """
    from .frame import Pace
    from .recurrent import layers, report

    return report(
        layers(kinds or _KINDS, units or _UNITS, batches or _BATCHES, steps), Pace(runs), torch
    )


@bench.command()
@_runs("Number of timings of each shape; short ones are timed more often.")
@_layers
def attention(torch: ModuleType | None, runs: int) -> Report:
    """Measure attention, forward and back.

    Shapes of a small GPT, GPT-2, BERT and ViT, against PyTorch's scaled_dot_product_attention. One
    thread each, interleaved; medians.
    """
    from . import attention
    from .frame import Pace

    return attention.report(attention.SHAPES, Pace(runs), torch)


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
@_beside_torch
@_printed
def chain(no_torch: bool, **given: Any) -> Report:
    """Measure speed and memory of the whole chain.

    `emuchain train` with the `fpdeep` schedule on the built-in data set, against plain PyTorch
    training of the same network on the same cores, in turns; medians.
    """
    from ..launch import usable_cores
    from .chain import Setting, report

    cores = usable_cores()
    given["ranks"] = given["ranks"] or min(cores, given["devices"])
    given["threads"] = given["threads"] or cores
    return report(Setting(**given), no_torch=no_torch)


@bench.command("simulate")
@_number("--runs", "Number of timings of each case.", 3, most=_MOST_RUNS)
@_printed
@click.option(
    "--curve",
    is_flag=True,
    help="Measure whole commands instead, on up to 10,000 boards, once each.",
)
def simulation(runs: int, curve: bool) -> Report:
    """Measure the cost of `emuchain simulate`.

    VGG-16 at ImageNet size on 1 to 1,024 devices, with 64 to 4,096 samples, and on smaller images:
    seconds, and the cost of each device and each row. Medians.

    With --curve, seconds and memory of whole commands with what they print: VGG-16 on 64 to 10,000
    boards, recurrent layers, and schedules of up to 1,024 stages.
    """
    from .simulate import curve_report, report

    return curve_report() if curve else report(runs)


@bench.command("codec")
@_number("--mebibytes", "Size of the values.", 16, most=1024)
@click.option(
    "--bound",
    type=click.IntRange(-127, 0),
    default=-10,
    show_default=True,
    metavar="E",
    help="Error bound 2^E.",
)
@_runs("Number of timings of each side.")
@_printed
def gradient_codec(mebibytes: int, bound: int, runs: int) -> Report:
    """Measure the speed of the INCEPTIONN codec.

    Compression and decompression of gradient-like numbers: GB/s, and ratios to memcpy, zfp and
    blosc2. One thread against one thread, interleaved; medians.
    """
    from .codec import report
    from .frame import Pace

    return report(mebibytes, bound, Pace(runs))


@bench.command("precision")
@_number("--mebibytes", "Size of the values; 1 fits in most caches of a core.", 1, most=1024)
@click.option(
    "--network",
    type=NETWORK,
    metavar="WORD",
    help="Train this network in each format instead, one for 3x32x32 images in ten classes.",
)
@click.option(
    "--formats", type=WORD, metavar="LIST", help="With --network: formats beside fp32, by commas."
)
@_number("--devices", "With --network: emulated FPGAs.", 8)
@_number("--batch", "With --network: samples of a mini-batch.", 128, most=10_000)
@_number("--micro-batch", "With --network: samples computed in one block.", 16, most=10_000)
@_runs("Number of timings of each side.")
@_beside_torch
@_printed
def quantisers(
    mebibytes: int,
    network: str | None,
    formats: str | None,
    devices: int,
    batch: int,
    micro_batch: int,
    runs: int,
    no_torch: bool,
) -> Report:
    """Measure the speed of rounding to each number format.

    GB/s of float32, and ratios to ml_dtypes, PyTorch and microxcaling. One thread each,
    interleaved; medians.

    With --network, training in some formats: the processor's time for a sample, over that in fp32;
    in turns, medians.
    """
    if network is not None:
        from . import steps
        from .chain import Setting

        setting = Setting(network, devices, 1, batch, micro_batch, 1, runs)
        return steps.report(setting, formats or steps.FORMATS)
    if formats is not None:
        raise InputError("--formats: give --network as well; all formats' rounding is measured")
    from .frame import Pace
    from .precision import report

    return report(mebibytes, Pace(runs), no_torch=no_torch)


def choose_form(name: str) -> None:
    """Set the micro-kernel's form, before any kernel is loaded.

    Raises:
        InputError: there is no such form, or another one is configured or in use already.
    """
    before = os.environ.get(FORM_SETTING)
    if before and before != name:
        raise InputError(
            f"--form {name}: but {FORM_SETTING} is {before}; unset it, or leave out the flag"
        )
    os.environ[FORM_SETTING] = name
    try:
        from ..kernels.form import FORM, FORMS
    except ValueError as error:
        raise InputError(f"--form: {error}") from None
    if name not in FORMS:
        raise InputError(f"--form {name}: unknown form; choose from {', '.join(FORMS)}")
    if FORM.name != name:
        raise InputError(
            f"--form {name}: the kernels are loaded as {FORM.name} already; start a new process"
        )
