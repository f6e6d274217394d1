"""Steps of recurrent layers: the states before them, from outputs and from kernels, and what
gradients need.
"""

from __future__ import annotations

import numpy as np
import pytest

from emuchain.emulator.device.pair import joined_weights, of_tape, split_weights, tape_arrays
from emuchain.emulator.device.slices.recurrent import (
    Kernel,
    all_backward,
    all_forward,
    states_before,
)
from emuchain.emulator.timing.pair import Content
from emuchain.kernels.recurrent import GruSlice, LstmSlice, Packed, Tape

KERNELS: dict[str, Kernel] = {
    "lstm": LstmSlice(3, 5),
    "projection": LstmSlice(3, 5, outputs=2),
    "gru": GruSlice(3, 5),
    "gru, reset before": GruSlice(3, 5, linear_before_reset=False),
}
FOR_GRADIENTS = {
    "lstm": (Content.DELTAS,),
    "projection": (Content.DELTAS, Content.CELLS, Content.PROJECTED_ERRORS),
    "gru": (Content.DELTAS, Content.RESET),
    "gru, reset before": (Content.DELTAS, Content.RESET),
}


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def weights_of(kernel: Kernel) -> dict[str, np.ndarray]:
    rows = kernel.channels
    arrays = {
        "w": drawn(rows, 3),
        "r": drawn(rows, kernel.width),
        "b_w": drawn(rows),
        "b_r": drawn(rows),
    }
    return {**arrays, "p": drawn(2, 5)} if kernel.width == 2 else arrays


def stepped(kernel: Kernel, lengths: np.ndarray | None, *, reverse: bool) -> tuple[Packed, Tape]:
    """Return the tape of three samples with four steps after FP and EB."""
    arrays = weights_of(kernel)
    packed = kernel.pack(arrays["w"], arrays["r"], arrays["b_w"], arrays["b_r"], arrays.get("p"))
    tape = kernel.tape(
        kernel.input_products(packed, drawn(3, 4, 3)), lengths=lengths, reverse=reverse
    )
    all_forward(kernel, packed, tape)
    all_backward(kernel, packed, tape, drawn(3, 4, kernel.width))
    return packed, tape


@pytest.mark.parametrize("lengths", [None, np.array([4, 1, 2])])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_states_before_each_step_are_those_of_the_kernels(
    name: str, reverse: bool, lengths: np.ndarray | None
) -> None:
    _, tape = stepped(KERNELS[name], lengths, reverse=reverse)
    found = states_before(tape.y, lengths, reverse=reverse)
    assert found.tobytes() == tape.h_before.tobytes()
    assert np.abs(found).sum() > 0


@pytest.mark.parametrize("name", KERNELS)
def test_gradients_from_messages_are_those_from_the_tape(name: str) -> None:
    kernel, lengths, x = KERNELS[name], np.array([4, 1, 2]), drawn(3, 4, 3)
    _, tape = stepped(kernel, lengths, reverse=False)
    got = {content: of_tape(content, kernel, tape).copy() for content in FOR_GRADIENTS[name]}
    arrays = tape_arrays(kernel, got, states_before(tape.y, lengths, reverse=False))
    found = []
    for each in (tape, Tape.restored(arrays, lengths, reverse=False)):
        gradients = {key: np.zeros_like(array) for key, array in weights_of(kernel).items()}
        g = gradients
        kernel.gradients(each, x, g["w"], g["r"], g["b_w"], g["b_r"], g.get("p"))
        found.append({key: array.tobytes() for key, array in gradients.items()})
        assert all(array.any() for array in gradients.values())
    assert found[0] == found[1]


@pytest.mark.parametrize("name", KERNELS)
def test_weights_of_a_message_come_apart_again(name: str) -> None:
    kernel = KERNELS[name]
    arrays = weights_of(kernel)
    names = {
        Content.INPUT_WEIGHTS: {"w"},
        Content.WEIGHTS: arrays.keys() - {"w"},
        Content.TURNED_WEIGHTS: {"r", "p"},
    }
    for content, expected in names.items():
        message = joined_weights(content, arrays)
        assert message.shape[:2] == (1, 1)
        found = split_weights(content, kernel, message)
        assert found.keys() == expected & arrays.keys()
        assert all(found[key].tobytes() == arrays[key].tobytes() for key in found)
        assert all(found[key].shape == arrays[key].shape for key in found)
