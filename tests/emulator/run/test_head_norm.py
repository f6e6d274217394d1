"""Norms of each head's queries and keys: against PyTorch in float64; on chains the same bits and
times however attention is cut.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.network import Site, load_network
from emuchain.emulator.network.operation import SfuStep
from emuchain.emulator.network.operations.rotary import HeadNorm
from emuchain.emulator.network.shape import Tensor
from emuchain.emulator.run import simulate
from emuchain.kernels import Arena

from .gpt import Table, gpt, written

KEYS: Table = {
    **{"schedule": "sync", "batch": 16, "samples": 32, "test_samples": 4, "learning_rate": 0.01},
    **{"data": "text"},
}


def normed(heads: int, kv_heads: int, **rules: Any) -> Table:
    """A language model whose queries and keys are normalised, and then turned."""
    network = gpt(24, 1, heads, 9, "rms-norm", kv_heads=kv_heads)
    layers: list[Table] = []
    for layer in network["layers"]:
        if layer["type"] == "rotary":
            layers.append({**layer, "type": "head-norm", "epsilon": 1e-6, **rules})
        layers.append(layer)
    return {**network, "layers": layers}


@pytest.mark.parametrize(
    "keys",
    [
        {"heads": 3},
        {"heads": 4, "kv_heads": 2},
        {"heads": 3, "scale": False},
        {"heads": 4, "kv_heads": 2, "offset": 1.0},
    ],
)
def test_it_is_that_of_pytorch_in_float64(keys: dict[str, Any]) -> None:
    """Values are left as they are; each sample by itself."""
    torch = pytest.importorskip("torch", reason="PyTorch, the peer of this test, is not installed")
    of, random = HeadNorm(**keys), np.random.default_rng(2)
    shape = of.parts[0] * of.groups * 6, 5, 1
    unit = of.unit(SfuStep(of, (Tensor(1, shape),), Tensor(2, shape)), Site(0, 0, Arena()))
    x, dy = (random.standard_normal((3, 5, 1, shape[0]), np.float32) for _ in range(2))
    weights = {key: random.standard_normal(6, np.float32) for key in of.learnt}
    assert unit.learns.keys() == weights.keys() and of.parameters(shape) == 6 * len(weights)
    module = of.torch(torch.nn, shape).double()
    with torch.no_grad():
        for key, own in weights.items():
            getattr(module, key).copy_(torch.from_numpy(own))
    leaf = torch.tensor(x[:, :, 0], dtype=torch.float64, requires_grad=True)
    expected = module(leaf)
    expected.backward(torch.tensor(dy[:, :, 0], dtype=torch.float64))

    def both(x: Any, dy: Any) -> tuple[Any, Any, Any]:
        y, state = unit.forward([x], weights, None)
        [dx] = unit.backward(state, dy, weights)
        sums = {key: np.zeros(6, np.float32) for key in weights}
        if unit.learns:  # others are asked for none
            unit.gradient(unit.kept(state, dy), sums, fresh=True)
        return y.copy(), dx.copy(), sums

    y, dx, sums = both(x, dy)
    pairs = [(y[:, :, 0], expected.detach()), (dx[:, :, 0], leaf.grad)]
    pairs += [(own, getattr(module, key).grad) for key, own in sums.items()]
    for ours, theirs in pairs:
        assert np.abs(ours - theirs.numpy()).max() <= 1e-6 * np.abs(theirs.numpy()).max()
    one = both(x[1:2], dy[1:2])
    assert np.array_equal(one[0], y[1:2]) and np.array_equal(one[1], dx[1:2])
    for key, first in unit.learns.items():
        assert (getattr(of.torch(torch.nn, shape), key).detach().numpy() == first).all()


def test_without_a_scale_it_divides_by_a_length() -> None:
    """Queries of 3 and 4, and keys of 0 and -2, whose lengths are 5 and 2, times the root of 2."""
    of, shape = HeadNorm(heads=1, scale=False, epsilon=1e-24), (6, 1, 1)
    unit = of.unit(SfuStep(of, (Tensor(1, shape),), Tensor(2, shape)), Site(0, 0, Arena()))
    x = np.array([3, 4, 0, -2, 7, 8], np.float32).reshape(1, 1, 1, 6)
    y, _ = unit.forward([x], {}, None)
    expected = np.array([0.6 * 2**0.5, 0.8 * 2**0.5, 0, -(2**0.5), 7, 8])
    assert y.reshape(6) == pytest.approx(expected, rel=1e-6)


def test_nothing_is_added_to_what_is_not_learnt(one_line: Any) -> None:
    keys = {"type": "head-norm", "heads": 2, "scale": False, "offset": 1.0}
    layers = [{"type": "conv", "channels": 6, "kernel": 1}, keys, {"type": "softmax"}]
    with pytest.raises(InputError, match="`scale` = false goes with no `offset`") as error:
        load_network({"name": "n", "input": [3, 5, 1], "layers": layers})
    assert one_line(error)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "rules"),
    [(3, 3, {"offset": 1.0}), (6, 3, {}), (6, 3, {"scale": False})],
    ids=["offset", "shared", "without a scale"],
)
def test_no_cut_changes_a_bit(
    tmp_path: Path, plan_of: Any, trained: Any, bits: Any, heads: int, kv_heads: int, rules: Table
) -> None:
    network = normed(heads, kv_heads, **rules)
    keys = {**KEYS, "network": written(tmp_path / "normed.toml", network)}
    whole = bits(trained(plan_of(**keys, devices=1, micro_batch=16)).weights)
    for cut in (
        "wte qkv0 attention0[:1] | attention0[1:] project0:head",
        "wte qkv0[:20] | qkv0[20:] attention0[:2] | attention0[2:] project0:head",
    ):
        plan = plan_of(**keys, cut=cut, devices=cut.count("|") + 1, micro_batch=4)
        run = trained(plan)
        assert bits(run.weights) == whole, cut
        assert run.history[-1].virtual_time_ps == simulate(plan, 32).epoch_ends_ps[-1]
    plain = gpt(24, 1, heads, 9, "rms-norm", kv_heads=kv_heads)
    other = {**keys, "network": written(tmp_path / "plain.toml", plain)}
    assert bits(trained(plan_of(**other, devices=1, micro_batch=16)).weights) != whole
