"""Parameters: the sums of their gradients, and their updates."""

from __future__ import annotations

import numpy as np
import pytest

from emuchain.emulator.device import Parameter, Rule
from emuchain.kernels import Arena
from emuchain.kernels.optimizers import Sgd
from emuchain.kernels.optimizers.adam import Adam
from emuchain.kernels.optimizers.nesterov import Nesterov


def test_the_first_gradient_after_an_update_begins_a_new_sum() -> None:
    rule = Rule(Sgd(learning_rate=1, momentum=0, weight_decay=0))
    parameter = Parameter(np.zeros(3, np.float32), Arena())
    for gradient in (2, 8):
        assert parameter.begins_sum()
        parameter.gradient[...] = gradient  # as a kernel does that begins
        assert not parameter.begins_sum()
        parameter.gradient += gradient
        parameter.update(4, rule, keeps=False)
    assert parameter.newest.tolist() == [-1 - 4] * 3


def test_an_update_without_gradients_goes_by_momentum_and_decay_alone() -> None:
    rule = Rule(Sgd(learning_rate=1, momentum=0.5, weight_decay=0))
    parameter = Parameter(np.zeros(2, np.float32), Arena())
    parameter.update(1, rule, keeps=False)
    assert parameter.newest.tolist() == [0, 0]
    parameter.begins_sum()
    parameter.gradient[...] = 4, -8
    parameter.update(1, rule, keeps=False)
    assert parameter.newest.tolist() == [-4, 8]
    parameter.update(1, rule, keeps=False)
    assert parameter.newest.tolist() == [-6, 12]
    assert parameter.begins_sum()


RULES = [
    Rule(Sgd(0.1, 0.0, 0.9)),
    Rule(Nesterov(0.1, 0.0, 0.9)),
    Rule(Adam(0.1, 0.0, 0.9, 0.999, 1e-8)),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.optimizer.name)
def test_the_state_is_a_list_of_named_arrays(rule: Rule) -> None:
    parameter = Parameter(np.arange(3, dtype=np.float32), Arena())
    assert [*parameter.state()] == ["value"]
    parameter.begins_sum()
    parameter.gradient[...] = 1, -2, 3
    parameter.update(2, rule, keeps=False)
    state = parameter.state()
    assert [*state] == ["value", *rule.states]
    assert all(np.count_nonzero(state[name]) == 3 for name in rule.states)
    other = Parameter(np.zeros(3, np.float32), Arena())
    other.restore(state)
    for each in (parameter, other):
        each.update(2, rule, keeps=False)
    assert other.newest.tolist() == parameter.newest.tolist() != state["value"].tolist()
    assert all(
        other.states[name].tolist() == parameter.states[name].tolist() for name in rule.states
    )
