"""Files of PyTorch with a plain state_dict: tensors by name, and nothing that runs code.

They are written by `torch.save`, and read by `torch.load` with `weights_only`, which makes nothing
but tensors and containers of them.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common import InputError, check_torch, described

TORCH_ENDINGS = ".pt", ".pth"


def torch_image(state: Mapping[str, Any]) -> bytes:
    """Return the content of a file with a state_dict."""
    import torch

    into = io.BytesIO()
    torch.save(dict(state), into)
    return into.getvalue()


def read_torch(path: str, blame: str) -> dict[str, NDArray[Any]]:
    """Return the tensors of a file by name, floats in single precision; `blame` begins messages.

    Raises:
        InputError: PyTorch is not installed, the file is damaged or holds more than tensors.
    """
    check_torch(blame)
    import torch

    try:
        held = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise InputError(
            f"{blame}: holds more than tensors, as a whole model does, and what may run code is not"
            " read; write it by torch.save(model.state_dict(), 'w.pt')"
        ) from None
    except Exception as error:  # of whatever is damaged
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{blame}: not a readable file of torch.save: {reason}") from None
    if not isinstance(held, Mapping):
        raise InputError(f"{blame}: holds {described(held)}; should be model.state_dict()")
    arrays = {}
    for key, value in held.items():
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            raise InputError(
                f"{blame}: {str(key)[:80]!r} is {described(value)}, where a state_dict has tensors;"
                " should be model.state_dict()"
            )
        numbers = value.detach()
        arrays[str(key)] = np.asarray(numbers.float() if numbers.is_floating_point() else numbers)
    return arrays
