"""Reading the pickled CIFAR-10 files without trusting them.

A pickle is a program, and a plain `pickle.load` runs whatever it says. Two measures prevent that here:

- the operations are scanned first, and only those that occur in the CIFAR-10 files are admitted;
- the few functions that these files name are replaced by stand-ins, which build arrays of bytes and nothing else.
"""

import io
import pickle
import pickletools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..common import InputError
from .files import read_file

_OPERATIONS = """
    PROTO FRAME STOP MARK MEMOIZE PUT BINPUT LONG_BINPUT GET BINGET LONG_BINGET
    NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1
    STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINBYTES SHORT_BINBYTES
    EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 LIST EMPTY_LIST APPEND APPENDS DICT EMPTY_DICT SETITEM SETITEMS
    GLOBAL STACK_GLOBAL REDUCE BUILD
""".split()
_STORES = ("PUT", "BINPUT", "LONG_BINPUT")


def unpickle(path: Path) -> dict[str, object]:
    """Return the dictionary in the pickle `path`, with its keys as str (bytes and str keys alike).

    The only objects that can occur are None, numbers, bytes, str, tuples, lists, dictionaries and arrays of uint8.
    Raises InputError when the file is damaged, is not a dictionary, or asks for anything else, which is never run.
    """
    data = read_file(path)
    try:
        _check_operations(data)
        return _named(_Unpickler(io.BytesIO(data), encoding="bytes").load())
    except _RefusedError as refused:
        raise InputError(
            f"{path}: refused: the pickle asks for {str(refused)!a}, which CIFAR-10 files do not need"
        ) from None
    except Exception as error:  # a damaged pickle can fail in any way
        reason = " ".join(str(error).split())[:100] or type(error).__name__
        raise InputError(f"{path}: not a whole CIFAR-10 pickle ({reason!a}); fetch it again") from None


class _RefusedError(Exception):
    """The pickle asks for something not admitted; the message names it."""


def _named(content: object) -> dict[str, object]:
    """Return `content` with str keys and finished arrays."""
    if not isinstance(content, dict) or not all(isinstance(key, str | bytes) for key in content):
        raise TypeError("no dictionary with names as keys")
    names = [key.decode("latin1") if isinstance(key, bytes) else key for key in content]
    values = [value.array if isinstance(value, _ArrayState) else value for value in content.values()]
    return dict(zip(names, values, strict=True))


def _check_operations(data: bytes) -> None:
    """Refuse operations that are not admitted, sizes past the end of the file, and memo places that skip ahead.

    Memo places must be checked because the unpickler makes its memo as long as the largest place named.
    """
    for count, (operation, argument, _) in enumerate(pickletools.genops(data)):
        if operation.name not in _OPERATIONS:
            raise _RefusedError(operation.name)
        if operation.name in _STORES and (argument is None or argument > count):
            raise _RefusedError(f"{operation.name} {argument}")


class _StandIn:
    """An object without attributes to set, so that a pickle's BUILD cannot change it for the next file."""

    __slots__ = ()

    def __setstate__(self, state: object) -> NoReturn:
        raise _RefusedError("BUILD of a function")


class _Encode(_StandIn):
    """`_codecs.encode`, with which Python 3 writes bytes at protocol 2."""

    def __call__(self, text: object, encoding: object = "utf-8") -> bytes:
        if isinstance(text, str) and encoding in ("latin1", b"latin1"):
            return text.encode("latin1")
        raise _RefusedError("_codecs.encode of something other than latin1 text")


class _DtypeState:
    """The result of `numpy.dtype("u1")`; its state may not define fields."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        if not (isinstance(state, tuple) and state[2:5] == (None, None, None)):
            raise _RefusedError("numpy.dtype with fields")


class _Dtype(_StandIn):
    """`numpy.dtype`, for unsigned bytes."""

    def __call__(self, code: object, *_: object) -> _DtypeState:
        if code in ("u1", b"u1"):
            return _DtypeState()
        raise _RefusedError(f"numpy.dtype({code!a:.40})" if isinstance(code, str | bytes) else "an unnamed numpy.dtype")


class _ArrayState:
    """The result of `_reconstruct`: an array of uint8, once its state is set."""

    __slots__ = ("array",)
    array: NDArray[np.uint8]

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple):
            raise _RefusedError("an array of an unknown state")
        _, shape, dtype, fortran, data = state
        if not isinstance(dtype, _DtypeState) or not isinstance(data, bytes):
            raise _RefusedError("an array of something other than bytes")
        self.array = np.ascontiguousarray(np.frombuffer(data, np.uint8).reshape(shape, order="F" if fortran else "C"))


class _Reconstruct(_StandIn):
    """`numpy.core.multiarray._reconstruct`."""

    def __call__(self, *_: object) -> _ArrayState:
        return _ArrayState()


class _Ndarray(_StandIn):
    """`numpy.ndarray`, which occurs only as an argument of `_reconstruct`."""


_ADMITTED: Mapping[str, _StandIn] = {
    "_codecs.encode": _Encode(),
    "numpy.dtype": _Dtype(),
    "numpy.ndarray": _Ndarray(),
    "numpy.core.multiarray._reconstruct": _Reconstruct(),
    "numpy._core.multiarray._reconstruct": _Reconstruct(),
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        admitted = _ADMITTED.get(f"{module}.{name}")
        if admitted is None:
            raise _RefusedError(f"{module}.{name}")
        return admitted

    def persistent_load(self, pid: object) -> NoReturn:
        raise _RefusedError("a persistent object")
