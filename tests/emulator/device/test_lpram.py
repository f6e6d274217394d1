"""Parameters: the sums of their gradients, and their updates."""

from __future__ import annotations

import numpy as np

from emuchain.emulator.device import Parameter, Sgd


def test_the_first_gradient_after_an_update_begins_a_new_sum() -> None:
    rule = Sgd(learning_rate=1, momentum=0, weight_decay=0)
    parameter = Parameter(np.zeros(3, np.float32))
    for gradient in (2, 8):
        assert parameter.begins_sum()
        parameter.gradient[...] = gradient  # as a kernel does that begins
        assert not parameter.begins_sum()
        parameter.gradient += gradient
        parameter.update(4, rule, keeps=False)
    assert parameter.newest.tolist() == [-1 - 4] * 3


def test_an_update_without_gradients_goes_by_momentum_and_decay_alone() -> None:
    rule = Sgd(learning_rate=1, momentum=0.5, weight_decay=0)
    parameter = Parameter(np.zeros(2, np.float32))
    parameter.update(1, rule, keeps=False)
    assert parameter.newest.tolist() == [0, 0]
    parameter.begins_sum()
    parameter.gradient[...] = 4, -8
    parameter.update(1, rule, keeps=False)
    assert parameter.newest.tolist() == [-4, 8]
    parameter.update(1, rule, keeps=False)
    assert parameter.newest.tolist() == [-6, 12]
    assert parameter.begins_sum()
