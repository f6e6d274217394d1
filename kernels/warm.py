"""Fill the store of compiled kernels once, so that the processes of a run only load machine code.

    python -m emuchain.kernels.warm

compiles all of them, with a process on each core.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from . import attention, inceptionn, layers, optimizers, pipeline, quantise, recurrent
from .conv import Convolution, Convolving, DotConvolution, Sums, convolution, look_up
from .current_folder import python_command, safe_environment
from .extensions import modules, offered_modules
from .fifo import serve
from .jit import Floats, announced, store

_MODULE_CPU_S = 1.0
"""What a module of layers or of optimisers takes, or one of an extension."""


class _Group(NamedTuple):
    """Kernels that are compiled together: by which call, the module that most of them are in, and
    how long that takes.

    The processor time was measured on a server's core of 2023.
    """

    compile: Callable[[], None]
    module: str
    cpu_s: float

    @property
    def is_missing(self) -> bool:
        """Whether the store has none of them."""
        return not store.has_any(self.module)


def compile_all(
    number: int = 0, processes: int = 1, done: Callable[[Sequence[_Group]], None] = lambda _: None
) -> None:
    """Call every kernel once on tiny arrays, as training calls it: at first the share of process
    `number`.

    This takes a tenth of a second if the store is full. After each group of kernels, `done` gets
    those that are left.
    """
    groups = [
        group
        for _, group in sorted(
            enumerate(_groups()), key=lambda place: place[0] % processes != number
        )
    ]
    for place, group in enumerate(groups, 1):
        group.compile()
        done(groups[place:])


def _missing_s(groups: Sequence[_Group]) -> float:
    """Return how much processor time those take that are missing. It looks into the store, so ask
    while compiling.
    """
    return sum(group.cpu_s for group in groups if group.is_missing)


def compile_together(say: Callable[[float], None]) -> None:
    """Do what `compile_all` does; if a kernel has to be compiled, use all cores.

    At first and after each group, `say` gets how much processor time is left. Each process begins
    with groups of its own, and then only loads what another has compiled.
    """
    others: list[subprocess.Popen[bytes]] = []
    begun = False

    def share() -> None:
        nonlocal begun
        begun = True
        say(max(_missing_s(_groups()), 1.0))
        others.extend(_start(number, processes) for number in range(1, processes))

    processes = usable_cores()
    with _ended(others), announced(share):
        compile_all(0, processes, lambda left: say(_missing_s(left)) if begun else None)


def _groups() -> list[_Group]:
    """Return groups of kernels; those that take longest come first."""
    long = [
        _Group(_warm_conv, f"{store.ROOM}.conv.microkernel", 9.0),
        _Group(attention.warm, f"{store.ROOM}.attention.heads", 7.1),
        _Group(recurrent.warm_lstm, f"{store.ROOM}.recurrent.lstm_steps", 5.4),
        _Group(quantise.warm, f"{store.ROOM}.quantise.loops", 4.8),
        _Group(recurrent.warm_summed, f"{store.ROOM}.recurrent.lines", 3.0),
        _Group(recurrent.warm_gru, f"{store.ROOM}.recurrent.gru_steps", 2.9),
        _Group(_warm_narrow_sums, f"{store.ROOM}.conv.narrow_kernel", 1.9),
        _Group(pipeline.warm, f"{store.ROOM}.pipeline.orders", 3.6),
        _Group(_warm_dots, f"{store.ROOM}.conv.block_kernel", 6.0),
        _Group(attention.warm_summed, f"{store.ROOM}.attention.lines", 2.5),
        _Group(_warm_links, f"{store.ROOM}.inceptionn.burst", 1.3),
    ]
    several = [*modules(layers.__name__), *modules(optimizers.__name__), *offered_modules()]
    short = [module for module in several if hasattr(module, "warm")]
    return [*long, *(_Group(module.warm, module.__name__, _MODULE_CPU_S) for module in short)]


def _warm_conv() -> None:
    x = np.ones((1, 3, 3, 2), np.float32)
    window = (3, 3), (3, 3), (1, 1)
    padded, whole_map = convolution(2, [2], *window, (1, 1)), convolution(2, [2], *window, (0, 0))
    _convolve(padded, x)
    _convolve(padded, np.ones((1, 3, 3, 4), np.float32)[..., :2])
    _convolve(whole_map, x)  # as in a fully connected layer
    _convolve(convolution(2, [1, 1], *window, (1, 1)), x)
    look_up.warm()


def _warm_narrow_sums() -> None:
    _convolve(
        Convolution(2, 2, (3, 3), (3, 3), (1, 1), (1, 1), sums=Sums.BF16),
        np.ones((1, 3, 3, 2), np.float32),
    )


def _warm_dots() -> None:
    dots = DotConvolution(2, 2, (3, 3), (3, 3), (1, 1), (1, 1), 8, (True, True, True))
    for value in (1, 1 / 3):  # the second one is not whole under any scale
        _convolve(dots, np.full((1, 3, 3, 2), value, np.float32))


def _convolve(kernel: Convolving, x: Floats) -> None:
    packed, frame = (
        np.ones(kernel.packed_size, np.float32),
        np.empty(kernel.frame_shape(1), np.float32),
    )
    turned, y, dx = (
        np.empty(kernel.turned_size, np.float32),
        np.empty((1, *kernel.output, 2), np.float32),
        np.empty_like(x),
    )
    kernel.turn(packed, turned)
    kernel.frame(x, frame)
    kernel.forward(y, frame, packed, fresh=True)
    kernel.error_frame(y, np.empty(kernel.error_frame_shape(1), np.float32))
    kernel.error(dx, np.empty(kernel.error_frame_shape(1), np.float32), turned, fresh=True)
    kernel.gradient(packed, frame, y, fresh=True)
    kernel.pack(kernel.unpack(packed))


def _warm_links() -> None:
    serve(np.zeros((1, 1), np.int64), 1, 0)
    buffer = inceptionn.compress(np.ones(2, np.float32), -10)
    inceptionn.decompress(buffer, 2)
    inceptionn.width_counts(buffer, 2)


def usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start(number: int, processes: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        python_command(__spec__.name, str(number), str(processes)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=safe_environment(os.environ),
    )


@contextmanager
def _ended(processes: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    """End the processes at the end of the body, when there is nothing left to compile."""
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


if __name__ == "__main__":
    if sys.argv[1:]:
        compile_all(int(sys.argv[1]), int(sys.argv[2]))
    else:
        compile_together(lambda _: None)
