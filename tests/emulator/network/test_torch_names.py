"""Names of PyTorch's tensors in a network's description: what comes back of them is the model's
state; what does not fit is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import emuchain
from emuchain.emulator.common import InputError, read_description
from emuchain.emulator.network import TorchNetwork, load_network, trained_state
from emuchain.emulator.network.pytorch.names import TorchNames, names_of, places_by, state_by
from emuchain.emulator.network.torch_network import TorchState

from ..from_torch_models import CASES, torch


@pytest.fixture(scope="module", params=CASES)
def network(request: pytest.FixtureRequest) -> TorchNetwork:
    """The network of a model."""
    case = CASES[request.param]
    return emuchain.from_torch(case.model(), case.example())


def test_a_description_gives_the_state_back(network: TorchNetwork) -> None:
    """The same as the model in memory does, whatever the weights."""
    again = load_network(read_description(network.text))
    assert again.text == network.text and not isinstance(again, TorchNetwork)
    weights = {
        layer: {name: array + 1 for name, array in own.items()}
        for layer, own in network.state.first_weights().items()
    }
    expected = network.state.with_weights(weights, 7, ())
    state = trained_state(again, weights, 7, (), "here")
    assert list(state) == list(expected)
    for key, tensor in expected.items():
        assert torch.equal(state[key], tensor) and state[key].dtype == tensor.dtype, key


def names_with(arrays: Any) -> TorchNames:
    """Names of one tensor, whose numbers arrays of the layer `a` are."""
    size = max(int(own.max()) for own in arrays.values()) + 1
    values = {name: np.asarray(own, np.int32) for name, own in arrays.items()}
    state = TorchState({"t": torch.zeros(size)}, {"t": 0}, {"a": values}, {})
    names = names_of(state)
    assert names is not None
    return names


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_places_come_back(sizes: list[int], random: Any) -> None:
    """Of axes that were permuted, and of rows and columns that were reordered."""
    axes = random.sample(range(len(sizes)), len(sizes))
    places = np.arange(np.prod(sizes)).reshape(sizes).transpose(axes)
    order = random.sample(range(places.shape[0]), places.shape[0])
    arrays = {"weight": places[order], "bias": np.arange(3)[::-1]}
    shapes = {"a": {name: own.shape for name, own in arrays.items()}}
    back = places_by(names_with(arrays), shapes, "here")["a"]
    assert all(np.array_equal(back[name], own) for name, own in arrays.items())


def test_numbers_in_no_order_have_no_names() -> None:
    places = {"a": {"weight": np.array([[0, 1], [2, 4]], np.int32)}}
    assert names_of(TorchState({"t": torch.zeros(5)}, {"t": 0}, places, {})) is None


MISFITS: dict[str, Any] = {
    "another array": {"arrays": {"a": {"bias": [[[0, 4, 1]]]}}},
    "another layer": {"arrays": {"b": {"weight": [[[0, 4, 1]]]}}},
    "fewer places": {"arrays": {"a": {"weight": [[[0, 3, 1]]]}}},
    "places beyond": {"arrays": {"a": {"weight": [[[1, 4, 1]]]}}},
    "places below": {"arrays": {"a": {"weight": [[[3, 4, -2]]]}}},
    "a large tensor": {"tensors": {"t": {"dtype": "float32", "shape": [10**9], "begin": 0}}},
    "values that are none": {
        "tensors": {
            "t": {"dtype": "float32", "shape": [4], "begin": 0},
            "mask": {"dtype": "bool", "shape": [4], "values": "AAAA"},
        }
    },
}


@pytest.mark.parametrize("name", MISFITS)
def test_what_does_not_fit_is_refused(name: str, one_line: Any) -> None:
    fits: dict[str, Any] = {
        "tensors": {"t": {"dtype": "float32", "shape": [4], "begin": 0}},
        "arrays": {"a": {"weight": [[[0, 4, 1]]]}},
    }
    shapes = {"a": {"weight": (2, 2)}}
    assert state_by(TorchNames.model_validate(fits), shapes, "here").size == 4
    with pytest.raises(InputError, match="its table `torch` does not fit") as error:
        state_by(TorchNames.model_validate({**fits, **MISFITS[name]}), shapes, "here")
    assert one_line(error).startswith("here: ")
