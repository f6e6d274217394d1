"""LSTM and GRU as ONNX means them: its own node cases, by our kernels."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from emuchain.kernels.recurrent import gru_forward, lstm_forward

onnx = pytest.importorskip(
    "onnx", reason="onnx, which has the cases of these tests, is not installed"
)

Data = NDArray[np.float32]

# Places of ONNX's gates in PyTorch's order. ONNX: i, o, f, c and z, r, h; PyTorch: i, f, g, o and
# r, z, n.
ORDER = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2)}


def cases() -> dict[str, Any]:
    """Return all node cases of LSTM and GRU by name, without those that emuchain refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case import node
        from onnx.backend.test.case.node import gru, lstm  # noqa: F401 - this makes their cases
    found = {
        case.name: case
        for case in node._NodeTestCases
        if case.name.startswith(("test_lstm", "test_gru"))
    }
    return {name: case for name, case in found.items() if "peepholes" not in name}


CASES = cases()


def in_our_order(kind: str, weights: Data) -> Data:
    """Return weights or biases of a direction with PyTorch's order of gates."""
    gates = np.split(weights, len(ORDER[kind]))
    return np.concatenate([gates[place] for place in ORDER[kind]])


def computed(model: Any, given: dict[str, Data]) -> dict[str, Data]:
    """Return the outputs of a model's only node, by the names of ONNX's operator."""
    [node] = model.graph.node
    attributes = {of.name: onnx.helper.get_attribute_value(of) for of in node.attribute}
    batch_first, hidden = attributes.get("layout", 0), attributes["hidden_size"]
    x = np.ascontiguousarray(given["X"] if batch_first else given["X"].swapaxes(0, 1))
    direction, kind = attributes.get("direction", b"forward"), node.op_type
    outputs, states = [], []
    for place, reverse in enumerate(
        {b"forward": [False], b"reverse": [True]}.get(direction, [False, True])
    ):
        w, r = (in_our_order(kind, given[name][place]) for name in "WR")
        biases = given["B"][place] if "B" in given else np.zeros(2 * len(w), np.float32)
        b_w, b_r = (in_our_order(kind, part) for part in np.split(biases, 2))
        assert r.shape[1] == hidden
        if kind == "LSTM":
            y, *state, _ = lstm_forward(x, w, r, b_w, b_r, reverse=reverse)
        else:
            after = bool(attributes.get("linear_before_reset", 0))
            y, *state, _ = gru_forward(
                x, w, r, b_w, b_r, linear_before_reset=after, reverse=reverse
            )
        outputs.append(y)
        states.append(state)
    y = np.stack(outputs, axis=2)  # samples, steps, directions, units
    last = [
        np.stack(found, axis=1) for found in zip(*states, strict=True)
    ]  # samples, directions, units
    if not batch_first:
        y, last = y.transpose(1, 2, 0, 3), [found.swapaxes(0, 1) for found in last]
    return dict(zip(("Y", "Y_h", "Y_c"), (y, *last), strict=False))


def test_there_are_the_cases_that_matter() -> None:
    for kind in ("lstm", "gru"):
        for case in ("defaults", "with_initial_bias", "batchwise", "reverse", "bidirectional"):
            assert f"test_{kind}_{case}" in CASES


@pytest.mark.parametrize("name", CASES)
def test_node_cases(name: str) -> None:
    model = CASES[name].model
    for inputs, expected in CASES[name].data_sets:
        given = dict(
            zip((value for value in model.graph.node[0].input if value), inputs, strict=True)
        )
        found = computed(model, given)
        compared = [value for value in model.graph.node[0].output if value]
        assert compared
        for output, wanted in zip(compared, expected, strict=True):
            np.testing.assert_allclose(found[output], wanted, rtol=0, atol=1e-5)
