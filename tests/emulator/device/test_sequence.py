"""Units of sequences: rows as time steps, and the last step of samples of differing lengths."""

from __future__ import annotations

import numpy as np
import pytest

from emuchain.emulator.network import SfuOperation, SfuStep, Site, Tensor, Training
from emuchain.emulator.network.operations.sequence import LastStep, Sequence
from emuchain.kernels import Arena

torch = pytest.importorskip("torch")


def unit_of(operation: SfuOperation, channels: int, rows: int, columns: int):  # type: ignore[no-untyped-def]
    """Return the unit of an operation on maps of this shape."""
    shape = channels, rows, columns
    step = SfuStep(operation, (Tensor(1, shape),), Tensor(2, operation.output([shape])))
    return operation.unit(step, Site(0, 1, Arena()))


def maps(*shape: int) -> np.ndarray:
    """Return maps (samples, rows, columns, channels) of different values."""
    return np.random.default_rng(1).standard_normal(shape, np.float32)


def test_a_sequence_is_that_of_pytorch_and_back() -> None:
    unit, x = unit_of(Sequence(), 3, 5, 4), maps(2, 5, 4, 3)
    y, state = unit.forward([x], {}, Training(0, np.arange(2)))
    expected = torch.from_numpy(x).permute(0, 3, 1, 2).permute(0, 2, 1, 3).flatten(2)
    assert y[:, :, 0].tobytes() == expected.numpy().tobytes()
    [dx] = unit.backward(state, y.copy(), {})
    assert dx.tobytes() == x.tobytes()
    assert unit.infer([x], {}, None).tobytes() == y.tobytes()


@pytest.mark.parametrize("lengths", [None, [5, 1, 3]])
def test_the_last_step(lengths: list[int] | None) -> None:
    unit, x = unit_of(LastStep(), 7, 5, 1), maps(3, 5, 1, 7)
    given = None if lengths is None else np.array(lengths)
    y, state = unit.forward([x], {}, Training(0, np.arange(3), given))
    last = [4, 4, 4] if lengths is None else [4, 0, 2]
    expected = np.stack([x[sample, step] for sample, step in enumerate(last)])
    assert y.shape == (3, 1, 1, 7)
    assert y[:, 0].tobytes() == expected.tobytes()
    assert unit.infer([x], {}, given).tobytes() == y.tobytes()
    dz = maps(3, 1, 1, 7)
    [dx] = unit.backward(state, dz, {})
    assert dx.shape == x.shape
    for sample, step in enumerate(last):
        assert dx[sample, step].tobytes() == dz[sample, 0].tobytes()
        assert not np.delete(dx[sample], step, axis=0).any()
