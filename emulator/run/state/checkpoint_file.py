"""The file of a checkpoint: a ZIP archive of NumPy arrays, which `numpy.load` opens, and one JSON
text.

    checkpoint.json                 what is not an array: configuration, position, clocks, history
    layers/LAYER/NAME/KIND.npy      a whole layer's arrays: LAYER is its number; KIND the value, or what updates
                                    remember of it, such as the velocity
    replicas/REPLICA/LAYER/NAME/KIND.npy  moving averages of replicas but the first
    residuals/REPLICA/DEVICE/PHASE.npy  what a codec has dropped of a device's gradients in a phase of the exchange
    sizes/N.npy                     of messages that have passed a codec in the epoch that is not finished
    history/NAME.npy                finished epochs, column by column
    history/steps/NAME.npy          their mini-batches

Nothing is compressed, and the archive has a checksum of each member, so that damage is found.
Arrays are checked against what is expected before they are read; Python objects are never read.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ...common import BROKEN_ZIP, CHECKPOINT, InputError, escaped, kind_of, unlike
from ...config import of_today
from ...network import Layer
from ..results import MOST_COUNT
from .layer_states import LayerState


def checked(form: Any, value: Any, name: str = "a value") -> Any:
    """Return a value after checking that it has the form of an example.

    An object has all keys of the example, and may have others; the values of an empty one are whole
    numbers. A list has its length, unless it is empty. Numbers are finite where those of the
    example are, and negative only where they are.

    Raises:
        ValueError: it has another form; `name` begins the message.
    """
    if isinstance(form, Mapping):
        items = _an(dict, value, name)
        missing = form.keys() - items.keys()
        if missing:
            raise ValueError(f"{name} has no {min(missing)!r}")
        for key in form or items:
            checked(form.get(key, 0), items[key], f"{key} of {name}" if len(name) < 80 else key)
    elif isinstance(form, str):
        _an(str, value, name)
    elif isinstance(form, Sequence):
        if len(_an(list, value, name)) != len(form) and form:
            raise ValueError(f"{name} has {len(value)} values, not {len(form)}")
        for example, item in zip(form, value, strict=False):
            checked(example, item, name)
    elif form is not None or value is not None:
        _number(0 if form is None else form, value, name)
    return value


def _an(kind: type, value: Any, name: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{name} is {type(value).__name__}, not {kind.__name__}")
    return value


def _number(form: float, value: Any, name: str) -> None:
    kinds = (int,) if isinstance(form, int) else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise ValueError(f"{name} is {type(value).__name__}, not a number")
    if math.isnan(form) and not isinstance(value, int):
        return
    if not (-MOST_COUNT if form < 0 else 0) <= value <= MOST_COUNT:
        raise ValueError(f"{name} is out of range")


FORMAT = 2
_TEXT = "checkpoint.json"
_MOST_TEXT = 1 << 30  # bytes; a header of thousands of devices has some megabytes
_DAMAGE: tuple[type[Exception], ...] = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    EOFError,
    AttributeError,
)
_DAMAGE += (OverflowError, RecursionError, NotImplementedError, zipfile.BadZipFile, zlib.error)
_DAMAGE += (SyntaxError, tokenize.TokenError)  # of headers of arrays


class _Unfinished(zipfile.ZipFile):
    """An archive that is thrown away unless it is closed; the file may be closed before it, as
    where a disk is full.
    """

    def __del__(self) -> None:
        """Write nothing more."""


class CheckpointWriter:
    """Fills a file with a checkpoint, array by array."""

    def __init__(self, file: BinaryIO) -> None:
        self._archive = _Unfinished(file, "w", zipfile.ZIP_STORED)

    def array(self, name: str, array: NDArray[Any]) -> None:
        """Add an array."""
        with self._archive.open(f"{name}.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)

    def pieces(
        self,
        name: str,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        pieces: Iterable[NDArray[Any]],
    ) -> None:
        """Add an array whose rows come in pieces."""
        header = {
            "descr": np.lib.format.dtype_to_descr(dtype),
            "fortran_order": False,
            "shape": shape,
        }
        with self._archive.open(f"{name}.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array_header_1_0(member, header)
            for piece in pieces:
                member.write(np.ascontiguousarray(piece, dtype).data)

    def layer(self, layer: Layer, state: LayerState, replica: int = 0) -> None:
        """Add a layer's arrays, or what a replica has of its own."""
        for name, kinds in state.items():
            for kind, array in kinds.items():
                self.array(_place(layer, replica, name, kind), array)

    def finish(self, text: Mapping[str, Any], history: Iterable[Sequence[Any]]) -> None:
        """Add the JSON text, with the rows of its last key `history` in pieces, and end the
        archive.
        """
        begin = json.dumps({"format": FORMAT, **text}, default=_plain).removesuffix("}")
        with (
            self._archive.open(_TEXT, "w", force_zip64=True) as member,
            io.TextIOWrapper(member, "ascii") as file,
        ):
            file.write(f'{begin}, "history": [')
            for number, rows in enumerate(history):
                file.write(", " * (number > 0) + json.dumps(rows, default=_plain)[1:-1])
            file.write("]}")
        self._archive.close()


class CheckpointReader:
    """An open checkpoint; `text` is its JSON object. Messages begin with `blame`, by default the
    key `resume`.

    Raises:
        InputError: there is no such file, or it is not a checkpoint, or damaged; so do all methods.
    """

    def __init__(self, path: str | os.PathLike[str], blame: str | None = None) -> None:
        self._blame = blame or f"`resume` = {os.fspath(path)!r}"
        try:
            kind = kind_of(path)
        except FileNotFoundError:
            raise InputError(
                f"{self._blame}: no such file; a run with `checkpoint` = FILE writes one"
            ) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"{self._blame}: cannot be read: {reason}") from None
        if kind not in (CHECKPOINT, BROKEN_ZIP):
            raise unlike(kind, path, self._blame, "not a readable checkpoint")
        with self._telling():
            self._archive = zipfile.ZipFile(path)
            self._names = self._archive.NameToInfo
            if len(self._names) < len(self._archive.infolist()):
                raise ValueError("two of its members have one name")
            if any(info.compress_type != zipfile.ZIP_STORED for info in self._names.values()):
                raise ValueError("its members are compressed")
            if _TEXT not in self._names or self._names[_TEXT].file_size > _MOST_TEXT:
                raise ValueError(f"it has no {_TEXT}")
            self.text: dict[str, Any] = dict(json.loads(self._archive.read(_TEXT)))
            if isinstance(self.text.get("config"), dict):
                self.text["config"] = of_today(self.text["config"])
        form = self.text.get("format")
        if form != FORMAT:
            raise InputError(
                f"{self._blame}: not a readable checkpoint, but one of another version of emuchain"
                f" (format {escaped(repr(form))[:20]}, not {FORMAT}); go on from it with that"
                " version, or begin a new run"
            )

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except _DAMAGE as error:
            reason = escaped(" ".join(str(error).split())[:200])
            raise InputError(
                f"{self._blame}: not a readable checkpoint, possibly damaged or truncated: {reason}"
            ) from None

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Report what is missing or wrong in the text as damage."""
        with self._telling():
            yield

    def array(self, name: str, dtype: type, shape: Sequence[int | None]) -> NDArray[Any]:
        """Return an array of this type and shape, in which None fits any size."""
        with self._telling():
            info = self._names[f"{name}.npy"]
            with self._archive.open(info) as member:
                version = np.lib.format.read_magic(member)
                header = io.BytesIO(member.read(1 << 10))
                read = (
                    np.lib.format.read_array_header_1_0
                    if version == (1, 0)
                    else np.lib.format.read_array_header_2_0
                )
                has, by_columns, kind = read(header)
                fits = len(has) == len(shape) and all(
                    w in (None, have) for have, w in zip(has, shape, strict=True)
                )
                if not fits or kind != dtype or by_columns:
                    raise ValueError(
                        f"{name} is {kind} {has}, and {np.dtype(dtype)} {tuple(shape)} is needed"
                    )
            values = self._archive.read(info)  # its end is its checksum's, too
            count = int(np.prod(has))
            return np.frombuffer(values, kind, count, len(values) - count * kind.itemsize).reshape(
                has
            )

    def of_layer(
        self, layer: Layer, replica: int, name: str, kind: str, shape: tuple[int, ...]
    ) -> NDArray[np.float32]:
        """Return one of a layer's arrays."""
        return self.array(_place(layer, replica, name, kind), np.float32, shape)

    def close(self) -> None:
        """Close the file, and forget its text."""
        self._archive.close()
        self.text = {}

    def __enter__(self) -> CheckpointReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _place(layer: Layer, replica: int, name: str, kind: str) -> str:
    return f"{f'replicas/{replica}' if replica else 'layers'}/{layer.index}/{name}/{kind}"


def _plain(value: Any) -> Any:
    """Return NumPy's numbers as Python's, for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value)} is not for JSON")
