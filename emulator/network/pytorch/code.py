"""Networks from a user's own code: `my_model.py:make_model`, a function that makes a model of
PyTorch.

The file is run as Python, and only where it is named so: no command takes such a name from a file
of results, or of a run that it resumes.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import sys
import traceback
import types
from collections.abc import Iterator
from typing import Any

from ...common import InputError, check_torch, described, did_you_mean, read_text
from ..from_torch import from_torch
from ..load import Code
from ..torch_network import TorchNetwork

_SIZES = re.compile(r"[1-9]\d{0,6}((?:x[1-9]\d{0,6}){0,2}|(?:\+[1-9]\d{0,6}){1,3})", re.ASCII)


def network_of_code(code: Code, sizes: str | None, seed: int) -> TorchNetwork:
    """Return the network of the model that a function makes, whose first weights are drawn by
    PyTorch with `seed`.

    `sizes` are those of a sample: "3x224x224" of an image, "128x40" of steps of values, "784" of
    values, or of symbols where the model has an embedding; "64+32" of a source's symbols and a
    target's, which it takes as two inputs.

    Raises:
        InputError: there is no such function, it fails, makes no model, or makes one that no
        network
            here can express; with file and line where code fails.
    """
    if not code.function:
        raise InputError(
            f"{code.blame}: name the function that makes the model, such as {code.file}:make_model"
        )
    if sizes is None:
        raise InputError(
            f"{code.blame}: needs `input`, the sizes of a sample, such as --input 3x224x224"
        )
    if _SIZES.fullmatch(sizes) is None:
        raise InputError(
            f"`input` = {sizes!r}: should be the sizes of a sample: 3x224x224 of an image, 128x40 of"
            " steps of values, 784 of values or symbols, 64+32 of symbols of a source and a target"
        )
    check_torch(code.blame)
    import torch

    sides = [[int(size) for size in side.split("x")] for side in sizes.split("+")]
    with torch.random.fork_rng(devices=[]), contextlib.redirect_stdout(sys.stderr):
        torch.manual_seed(seed)
        model = _made(code)
    by_symbols = len(sides[0]) == 1 and any(
        isinstance(module, torch.nn.Embedding) for module in model.modules()
    )
    kind = torch.int64 if by_symbols else torch.float32
    examples = [torch.zeros(2, *shape, dtype=kind) for shape in sides]
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return from_torch(model, tuple(examples) if len(examples) > 1 else examples[0])
    except InputError as error:
        line = _line(error.__context__, code.file)
        where = "" if line is None else f"{code.file}, line {line}: "
        raise InputError(f"{where}{error}") from None


def _made(code: Code) -> Any:
    """Return the model that a function makes.

    Raises:
        InputError: there is no such function, or it fails, or makes something else.
    """
    import torch

    text = read_text(code.file)
    module = types.ModuleType(f"emuchain_{code.file.stem}")
    module.__file__ = os.fspath(code.file)
    with _failing(code), _beside(code.file):
        sys.modules[module.__name__] = module  # where classes of the file are looked up
        exec(compile(text, os.fspath(code.file), "exec"), module.__dict__)
    made = module.__dict__.get(code.function)
    if made is None:
        known = [name for name, value in vars(module).items() if callable(value)]
        raise InputError(
            f"{code.blame}: {code.file} has no {code.function!r};"
            f" {did_you_mean(code.function, known)}should be a function that returns a"
            " torch.nn.Module"
        )
    if not isinstance(made, torch.nn.Module):
        if not callable(made):
            raise InputError(
                f"{code.blame}: is {described(made)}; should be a function that returns a"
                " torch.nn.Module"
            )
        with _failing(code), _beside(code.file):
            made = made()
    if not isinstance(made, torch.nn.Module):
        raise InputError(
            f"{code.blame}: returns {described(made)}; should return a torch.nn.Module"
        )
    return made


@contextlib.contextmanager
def _beside(file: pathlib.Path) -> Iterator[None]:
    """Let code import what lies beside its file, as Python does for a script."""
    before = sys.path[:]
    sys.path.insert(0, os.fspath(file.resolve().parent))
    try:
        yield
    finally:
        sys.path[:] = before


@contextlib.contextmanager
def _failing(code: Code) -> Iterator[None]:
    """Turn errors of the code within into one line, with file and line."""
    try:
        yield
    except (Exception, SystemExit) as error:  # of any kind: the code is the user's
        line = _line(error, code.file)
        where = str(code.file) if line is None else f"{code.file}, line {line}"
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        reason = " ".join(said.split())[:200]
        raise InputError(f"{code.blame}: {where}: {type(error).__name__}: {reason}") from None


def _line(error: BaseException | None, file: pathlib.Path) -> int | None:
    """Return the last line of a file that an error, or what caused it, came through."""
    line = None
    while error is not None:
        if isinstance(error, SyntaxError) and error.filename == os.fspath(file):
            line = error.lineno
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename == os.fspath(file):
                line = frame.lineno
        error = error.__cause__ or error.__context__
    return line
