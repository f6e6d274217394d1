"""What a device computes with: parameters, the SFU, the images, and who may change which maps."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import DTypeLike, NDArray

from emuchain.comm.host import Mailbox
from emuchain.comm.message import Message
from emuchain.comm.ranks import Alone
from emuchain.emulator.config.config import load_config
from emuchain.emulator.data.load import load
from emuchain.emulator.device.ends import ImageSource, epoch_order
from emuchain.emulator.device.parameter import Parameter, Sgd
from emuchain.emulator.device.sfu import Sfu
from emuchain.emulator.network.layers import Layer, Pool, Relu, SfuStep, Tensor
from emuchain.emulator.plan.plan import make_plan
from emuchain.emulator.run.train import Weights, train
from emuchain.emulator.schedule.action import MicroBatch, Portion
from emuchain.kernels.arena import Arena
from emuchain.kernels.layers import pool, relu

# Every operation, and those next to one another that keep maps or change them in place.
NETWORK = """
name = "everything"
input = [3, 32, 32]
layers = [
  { type = "conv", channels = 20, kernel = 5, stride = 2, pad = 2 },
  { type = "relu" },
  { type = "lrn", size = 5 },
  { type = "relu" },
  { type = "max-pool", kernel = 3, stride = 2, pad = 1 },
  { type = "conv", channels = 33, kernel = [3, 1], pad = [1, 0], bias = false },
  { type = "relu" },
  { type = "max-pool", kernel = 3, stride = 1, pad = 1 },
  { type = "dropout", rate = 0.3 },
  { type = "average-pool", kernel = 3, stride = 2 },
  { type = "relu" },
  { type = "conv", channels = 17, kernel = 1 },
  { type = "max-pool", kernel = 2, stride = 1 },
  { type = "relu" },
  { type = "dropout", rate = 0.5 },
  { type = "fc", features = 21 },
  { type = "relu" },
  { type = "lrn", size = 3 },
  { type = "dropout", rate = 0.5 },
  { type = "fc", features = 10 },
  { type = "softmax" },
]
"""


def trained(folder: Path, data: Path, **flags: object) -> Weights:
    """The weights after an epoch in this process."""
    (folder / "everything.toml").write_text(NETWORK)
    settings = {"network": str(folder / "everything.toml"), "batch": 12, "micro_batch": 5, "schedule": "sync"}
    found: Weights = {}
    train(
        make_plan(load_config(None, {**settings, **flags}), 1),
        load(str(data)).first(40).test_first(7),
        Alone(),
        lambda _: None,
        lambda _, weights: found.update(weights),
        gather_weights=True,
    )
    return found


def bits(weights: Weights) -> dict[str, bytes]:
    return {f"{layer}/{name}": array.tobytes() for layer, of in weights.items() for name, array in of.items()}


def test_the_mapping_never_changes_what_any_operation_gives(tmp_path: Path, small_cifar: Path) -> None:
    expected = bits(trained(tmp_path, small_cifar, devices=1))
    assert bits(trained(tmp_path, small_cifar, devices=1, seed=2)) != expected
    for devices, micro_batch in ((2, 5), (5, 12), (9, 1), (25, 4)):
        assert bits(trained(tmp_path, small_cifar, devices=devices, micro_batch=micro_batch)) == expected, devices


@pytest.mark.parametrize("devices", [2, 5, 9])
def test_portions_never_change_what_any_operation_gives(tmp_path: Path, small_cifar: Path, devices: int) -> None:
    """Where a device's version changes within a micro-batch, it does that one in portions."""
    fpdeep = {"devices": devices, "schedule": "fpdeep"}
    programs = make_plan(load_config(None, {**fpdeep, "batch": 12, "micro_batch": 12}), 1).schedule(40).programs([0])
    assert any(action.span for action in programs[0])
    expected = bits(trained(tmp_path, small_cifar, **fpdeep, micro_batch=1))
    for micro_batch in (5, 12):
        assert bits(trained(tmp_path, small_cifar, **fpdeep, micro_batch=micro_batch)) == expected, micro_batch


@pytest.mark.parametrize("schedule", ["sync", "fpdeep"])
@pytest.mark.parametrize("devices", [4, 9])
def test_nobody_notices_that_messages_within_a_process_are_not_copied(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small_cifar: Path, schedule: str, devices: int
) -> None:
    """Neither does a sender change what it sent, nor a receiver what the sender still needs."""
    expected = bits(trained(tmp_path, small_cifar, devices=devices, schedule=schedule))
    put, copied = Mailbox.put, 0

    def put_copy(self: Mailbox, message: Message) -> None:
        nonlocal copied
        if message.data is not None:
            copied += 1
            message = Message(message.first, message.times.copy(), message.data.copy())
        put(self, message)

    monkeypatch.setattr(Mailbox, "put", put_copy)
    assert bits(trained(tmp_path, small_cifar, devices=devices, schedule=schedule)) == expected
    assert copied > 0


def test_nothing_is_read_from_an_arena_before_it_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small_cifar: Path
) -> None:
    expected = bits(trained(tmp_path, small_cifar, devices=9))
    take = Arena.take

    def take_poisoned(self: Arena, shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> NDArray[Any]:
        found = take(self, shape, dtype)
        found[...] = 255 if found.dtype == np.uint8 else np.nan
        return found

    monkeypatch.setattr(Arena, "take", take_poisoned)
    assert bits(trained(tmp_path, small_cifar, devices=9)) == expected


def test_the_first_gradient_after_an_update_begins_a_new_sum() -> None:
    rule = Sgd(learning_rate=1, momentum=0, weight_decay=0)
    parameter = Parameter(np.zeros(3, np.float32))
    for gradient in (2, 8):
        assert parameter.begins_sum()
        parameter.gradient[...] = gradient  # as a kernel does that begins
        assert not parameter.begins_sum()
        parameter.gradient += gradient
        parameter.update(4, rule)
    assert parameter.value.tolist() == [-1 - 4] * 3


def test_an_update_without_gradients_goes_by_momentum_and_decay_alone() -> None:
    rule = Sgd(learning_rate=1, momentum=0.5, weight_decay=0)
    parameter = Parameter(np.zeros(2, np.float32))
    parameter.update(1, rule)
    assert parameter.value.tolist() == [0, 0]
    parameter.begins_sum()
    parameter.gradient[...] = 4, -8
    parameter.update(1, rule)
    assert parameter.value.tolist() == [-4, 8]
    parameter.update(1, rule)
    assert parameter.value.tolist() == [-6, 12]
    assert parameter.begins_sum()


@given(
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(2, 6),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 1),
    st.integers(0, 2**32 - 1),
)
def test_the_way_back_through_relu_and_max_pool(
    samples: int, channels: int, size: int, kernel: int, stride: int, pad: int, seed: int
) -> None:
    """It is the pool's, then ReLU's, with equal maxima and not-a-numbers too."""
    kernel, pad = min(kernel, size), min(pad, min(kernel, size) - 1)
    out = (size + 2 * pad - kernel) // stride + 1
    small, large = (channels, out, out), (channels, size, size)
    operation = Pool(type="max-pool", kernel=(kernel, kernel), stride=(stride, stride), pad=(pad, pad))
    x, convolved, rectified_map, pooled = (Tensor(n, shape) for n, shape in enumerate((large, large, large, small)))
    steps = SfuStep(Relu(type="relu"), (convolved,), rectified_map), SfuStep(operation, (rectified_map,), pooled)
    layer = Layer(0, "a", x, convolved, (), (pooled,), channels, (1, 1), (1, 1), (0, 0), True, False, steps)
    sfu = Sfu(layer, 0, Arena())
    assert sfu.bias is not None
    random = np.random.default_rng(seed)
    sfu.bias.value[...] = random.integers(-1, 2, channels)
    y = random.choice(np.array([-2, -1, -0.0, 0, 1, 2, np.nan], np.float32), (samples, size, size, channels))
    dz = random.standard_normal((samples, out, out, channels)).astype(np.float32)

    rectified = y + sfu.bias.value
    relu.forward(rectified)
    z, places, dx = np.empty_like(dz), np.empty(dz.shape, np.uint8), np.empty_like(y)
    pool.max_forward(rectified, z, places, kernel=kernel, stride=stride, pad=pad)
    pool.max_error(dz, places, dx, kernel=kernel, stride=stride, pad=pad)
    relu.error(rectified, dx)

    whole = MicroBatch(7, 0, 0, samples).whole

    def forward(portion: Portion) -> Any:
        held = {1: y[portion.slice].copy()}
        sfu.forward(portion, held, np.arange(samples)[portion.slice])
        return held[3]

    def backward(portion: Portion) -> Any:
        errors = {3: dz[portion.slice].copy()}
        sfu.backward(portion, errors)
        return errors[1]

    assert np.array_equal(forward(whole), z, equal_nan=True)
    assert backward(whole).tobytes() == dx.tobytes()

    there, back = samples // 2, samples // 3
    for portion in portions(whole.of, there):
        assert np.array_equal(forward(portion), z[portion.slice], equal_nan=True)
    for portion in portions(whole.of, back):
        assert backward(portion).tobytes() == dx[portion.slice].tobytes()


def portions(of: MicroBatch, *cuts: int) -> list[Portion]:
    """A micro-batch in portions that end at such samples."""
    return [Portion(of, begin, end) for begin, end in itertools.pairwise([0, *cuts, of.samples]) if begin < end]


def test_images_come_normalised_channels_last_and_in_order(small_cifar: Path) -> None:
    data = load(str(small_cifar)).first(20)
    source = ImageSource(data.train_images, data.normalisation(), Arena())
    source.order = epoch_order(1, 0, 20)
    found = source.images(Portion(MicroBatch(index=2, step=0, begin=10, end=30), 1, 8))
    expected = data.normalisation().apply(data.train_images)[source.order[11:18]]
    assert found.dtype == np.float32
    assert found.flags.c_contiguous
    assert found.tobytes() == np.moveaxis(expected, 1, -1).tobytes()
