"""Loss and update of weights against PyTorch; what `warm` compiles; and code for other
processors.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.kernels import warm
from emuchain.kernels.jit import store
from emuchain.kernels.layers import loss
from emuchain.kernels.optimizers import nesterov, sgd

relaxed = settings(deadline=None, max_examples=40)
ROUNDING = 2.0**-24


@relaxed
@given(
    st.integers(1, 8),
    st.integers(1, 30),
    st.sampled_from([0.01, 1.0, 30.0, 1e4]),
    st.sampled_from([0.0, 0.0, 0.1, 0.75]),
    st.integers(0, 2**32),
)
def test_loss_is_that_of_pytorch(
    n: int, classes: int, size: float, smoothing: float, seed: int
) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what the values are compared with")
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((n, classes), np.float32) * np.float32(size)
    labels = rng.integers(0, classes, n)
    tx = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    expected = torch.nn.functional.cross_entropy(
        tx, torch.tensor(labels), reduction="none", label_smoothing=smoothing
    )
    expected.sum().backward()
    losses, errors, correct = loss.softmax_cross_entropy(logits, labels, smoothing)
    # computed in float64 and rounded once; float64 itself errs by some 2^-52 of the logits' size
    slack = 2.0**-48 * (1 + abs(logits).max()) * classes
    assert np.all(abs(losses - expected.detach().numpy()) <= ROUNDING * abs(losses) + slack)
    assert np.all(abs(errors - tx.grad.numpy()) <= ROUNDING * abs(errors) + slack)
    assert np.array_equal(correct, logits.argmax(1) == labels)
    assert (losses.dtype, errors.dtype, correct.dtype) == (np.float32, np.float32, np.bool_)
    for i in range(n):
        one = loss.softmax_cross_entropy(logits[i : i + 1], labels[i : i + 1], smoothing)
        assert np.array_equal(one[0][0], losses[i])
        assert np.array_equal(one[1][0], errors[i])


def test_smoothed_loss_by_hand() -> None:
    """Two equal logits: p is 1/2 for both, the target 0.9 and 0.1, and the loss ln 2 whatever the
    target.
    """
    losses, errors, correct = loss.softmax_cross_entropy(
        np.ones((1, 2), np.float32), np.array([1]), 0.2
    )
    assert losses.tolist() == [np.float32(np.log(2))]
    assert errors.tolist() == [[np.float32(0.4), np.float32(-0.4)]]
    assert correct.tolist() == [False]


def test_first_of_equal_logits_is_the_answer() -> None:
    _, _, correct = loss.softmax_cross_entropy(np.ones((2, 3), np.float32), np.array([0, 1]))
    assert correct.tolist() == [True, False]


def test_loss_refuses_labels_that_do_not_fit() -> None:
    logits = np.zeros((2, 3), np.float32)
    with pytest.raises(ValueError, match="do not fit 3 classes"):
        loss.softmax_cross_entropy(logits, np.array([0, 3]))
    with pytest.raises(ValueError, match="do not fit 3 classes"):
        loss.softmax_cross_entropy(logits, np.array([0, -1]))
    with pytest.raises(ValueError, match="smoothing is at least 0 and below 1"):
        loss.softmax_cross_entropy(logits, np.array([0, 1]), 1.0)
    with pytest.raises(ValueError, match="are needed"):
        loss.softmax_cross_entropy(logits, np.array([0]))


@relaxed
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.integers(1, 300),
    st.floats(0, 1),
    st.floats(0, 0.99),
    st.floats(0, 0.1),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_update_is_that_of_pytorch(
    shape: list[int],
    count: int,
    learning_rate: float,
    momentum: float,
    weight_decay: float,
    looks_ahead: bool,
    seed: int,
) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what the values are compared with")
    rng = np.random.default_rng(seed)
    w = rng.standard_normal(shape, np.float32)
    velocity = np.zeros_like(w)
    keys = {"learning_rate": learning_rate, "momentum": momentum, "weight_decay": weight_decay}
    tw = torch.nn.Parameter(torch.tensor(w, dtype=torch.float64))
    looks_ahead = looks_ahead and momentum > 0  # PyTorch takes no other
    optimizer = torch.optim.SGD(
        [tw], lr=learning_rate, momentum=momentum, weight_decay=weight_decay, nesterov=looks_ahead
    )
    size = abs(w).astype(np.float64)
    for _ in range(3):
        gradient = rng.standard_normal(shape, np.float32) * np.float32(count)
        tw.grad = torch.tensor(gradient, dtype=torch.float64) / count
        optimizer.step()
        size += (
            learning_rate * (5 if looks_ahead else 3) * (abs(gradient) / count + size)
        )  # a bound on all parts of the sums so far
        before = gradient.copy()
        (nesterov if looks_ahead else sgd).update(w, gradient, velocity, count=count, **keys)
        assert np.array_equal(
            gradient, before
        )  # the first gradient of the next mini-batch replaces it
    # each step rounds each part a few times, and 1 / count, the rate, the momentum, the decay once
    # each
    assert np.all(abs(w - tw.detach().numpy()) <= 3 * 12 * ROUNDING * size)


def test_update_by_hand() -> None:
    w, gradient, velocity = (np.array([value], np.float32) for value in (8, 12, 4))
    sgd.update(w, gradient, velocity, count=4, learning_rate=0.5, momentum=0.25, weight_decay=0.125)
    assert (w.item(), gradient.item(), velocity.item()) == (
        8 - 0.5 * 5,
        12,
        0.25 * 4 + 12 / 4 + 0.125 * 8,
    )


def test_update_by_hand_with_nesterov() -> None:
    w, gradient, velocity = (np.array([value], np.float32) for value in (8, 12, 4))
    nesterov.update(
        w, gradient, velocity, count=4, learning_rate=0.5, momentum=0.25, weight_decay=0.125
    )
    assert (w.item(), gradient.item(), velocity.item()) == (
        8 - 0.5 * (4 + 0.25 * 5),
        12,
        0.25 * 4 + 12 / 4 + 0.125 * 8,
    )


@pytest.mark.parametrize("kernel", [sgd, nesterov])
def test_update_refuses_what_does_not_fit(kernel: Any) -> None:
    a, b = np.zeros(2, np.float32), np.zeros(3, np.float32)
    keys = {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.0}
    with pytest.raises(ValueError, match="one shape"):
        kernel.update(a, b, a, count=1, **keys)
    with pytest.raises(ValueError, match="at least one sample"):
        kernel.update(a, a.copy(), a.copy(), count=0, **keys)
    with pytest.raises(ValueError, match="velocity is changed in place"):
        kernel.update(a, a.copy(), np.zeros(4, np.float32)[::2], count=1, **keys)
    with pytest.raises(TypeError, match="value must be float32"):
        kernel.update(np.zeros(2), a.copy(), a.copy(), count=1, **keys)


def run(program: str, cache: Path, **variables: str) -> str:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), **variables}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


COUNT = """
from numba.core import event
from emuchain.kernels import warm
from emuchain.kernels.optimizers import sgd
with event.install_recorder("numba:compile") as recorder:
    {calls}
print(len(recorder.buffer))
"""

OTHER_CALLS = """
    warm.compile_all()
    import numpy as np
    from emuchain.kernels import attention, conv
    from emuchain.kernels.layers import activations, element_wise, normalisation, pool, row_norm
    x, w = np.zeros((4, 6, 7, 9), np.float32)[::2, 1::2], np.zeros((5, 3, 2, 1), np.float32)
    w.flags.writeable = False
    window = dict(stride=(2, np.int64(1)), pad=[1, 0])
    y = conv.forward(x, w, **window)
    dw = conv.gradient(x, y, w.shape, accumulate=w, **window)
    conv.error(np.asfortranarray(y), w, list(x.shape), partial=x, **window)
    sgd.update(dw, dw.copy(), dw.copy(), count=3, learning_rate=1, momentum=0, weight_decay=0)
    wide = np.zeros((2, 6, 7, 12), np.float32)
    maps, other, scale = wide[..., 3:7], np.asfortranarray(wide[..., 4:8]), wide[..., 8:]
    element_wise.add_bias_gradient(np.zeros(4, np.float32), other, fresh=np.bool_(False))
    element_wise.rectify_with_bias(maps, np.zeros(8, np.float32)[::2])
    activations.rectified_error(other, maps)
    top, place = np.zeros((2, 5, 5, 4), np.float32), np.zeros((2, 5, 5, 4), np.uint8)
    pool.max_forward(other, top, place, kernel=[2, 3], stride=1, pad=np.int32(0))
    pool.max_error(top, place, maps, kernel=(2, 3), stride=(1, 1), pad=0)
    pool.average_error(np.broadcast_to(top[:1], top.shape), maps, kernel=(2, np.int64(3)), stride=[1, 1], pad=0)
    normalisation.dropout_mask(maps, rate=0, seed=3, layer=np.int64(4), samples=np.arange(4, dtype=np.int32)[::2])
    normalisation.lrn_forward(maps, other.copy(), scale, size=np.int32(3), alpha=1, beta=1, k=1)
    wide.flags.writeable = False
    of = conv.Convolution(12, 4, (6, 7), (3, 3), (1, 1), (1, 1))
    of.frame(wide, np.empty(of.frame_shape(2), np.float32))
    activations.rectified_error(wide, np.zeros(wide.shape, np.float32))
    heads, rows = attention.Attention(1, 2, causal=False, scale=1), np.zeros((2, 3, 8), np.float32)[..., :6]
    masks = dict(lengths=np.array([3, 1], np.int32), kept=np.ones((2, 1, 3, 3), np.float32))
    y, statistics = attention.forward(rows, heads, **masks)
    attention.backward(rows, statistics, y, heads)
    statistics, scale = np.zeros((2, 6, 7, 2), np.float32), np.ones(8, np.float32)[::2]
    row_norm.rms_norm_forward(wide[..., :4], top := np.zeros((2, 6, 7, 4), np.float32), statistics, scale, epsilon=1)
    row_norm.row_norm_error(wide[..., :4], statistics, scale, top, top, centred=np.bool_(False))
    row_norm.row_norm_gradient(wide[..., :4], statistics, top, np.ones(4, np.float32), fresh=False)
    activations.activations()["gelu"].infer(wide[..., :4], np.empty, True)
"""


@pytest.mark.slow
def test_warm_start_compiles_nothing(tmp_path: Path) -> None:
    """Neither do arguments of other layouts and types; what `warm` has compiled before is all that
    there is.
    """
    warm.compile_all()
    # A user's cache may have some of them: they are loaded from there, and kept nowhere else.
    places = [place for place in store._places() if place.is_dir()]
    kept = {path.name: path.read_bytes() for place in places for path in place.glob("*.code")}
    (filled := tmp_path / "filled").mkdir()
    for name, code in kept.items():
        (filled / name).write_bytes(code)
    assert int(run(COUNT.format(calls=OTHER_CALLS), filled)) == 0
    assert {path.name: path.read_bytes() for path in filled.glob("*.code")} == kept
    assert int(run(COUNT.format(calls="sgd.warm()"), tmp_path / "empty")) > 0


CONVOLVE = """
import hashlib
import numpy as np
from emuchain.kernels import conv
rng = np.random.default_rng(0)
x, w = rng.standard_normal((2, 9, 7, 8), np.float32), rng.standard_normal((70, 9, 3, 2), np.float32)
y = conv.forward(x, w, stride=(1, 2), pad=1)
dx, dw = conv.error(y, w, x.shape, stride=(1, 2), pad=1), conv.gradient(x, y, w.shape, stride=(1, 2), pad=1)
from emuchain.kernels.optimizers import adam, nesterov, sgd
w, g, v = (rng.standard_normal(37, np.float32) for _ in range(3))
keys = dict(count=3, learning_rate=0.1, weight_decay=0.01)
sgd.update(w, g, v, momentum=0.9, **keys)
nesterov.update(w, g, v, momentum=0.9, **keys)
adam.update(w, g, v, g * g, number=2, beta1=0.9, beta2=0.999, epsilon=1e-8, decoupled=True, **keys)
digest = hashlib.sha256(b"".join(a.tobytes() for a in (y, dx, dw, w, v))).hexdigest()
"""


@pytest.mark.slow
@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="names features of x86 processors"
)
@pytest.mark.parametrize("features", ["-avx,-fma", ""])
def test_bits_do_not_depend_on_the_processor(tmp_path: Path, features: str) -> None:
    """A processor with short vectors and no fused multiply-add of its own gives the bits that this
    one gives.
    """
    here: dict[str, str] = {}
    exec(CONVOLVE, here)
    plain = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": features}
    assert run(CONVOLVE + "print(digest)", tmp_path, **plain) == here["digest"]
