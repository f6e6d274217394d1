"""Models of PyTorch train here as there, from their own weights, and get the trained ones back.

Batch normalisation is by moving averages here, in training, too; so it is in the peer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.data import Dataset
from emuchain.emulator.device import epoch_order

from ..from_torch_models import CASES, Case, Tied, nn, torch

BATCH, STEPS, SEED = 6, 20, 3
SETTINGS: dict[str, Any] = {
    **{"batch": BATCH, "micro_batch": 2, "schedule": "sync", "seed": SEED, "progress": "none"},
    **{"learning_rate": 0.01, "momentum": 0.9, "weight_decay": 5e-4, "memory": "ignored"},
}


@contextlib.contextmanager
def by_averages(model: Any) -> Iterator[list[Any]]:
    """Normalise by moving averages in training, to which each call adds its mini-batch once it is
    over.
    """
    pending: list[Any] = []

    def note(module: Any, given: tuple[Any]) -> None:
        x = given[0].detach().transpose(0, 1).flatten(1)
        pending.append((module, x.mean(1), x.var(1)))

    kinds = nn.BatchNorm1d | nn.BatchNorm2d
    norms = [module for module in model.modules() if isinstance(module, kinds)]
    hooks = [module.eval().register_forward_pre_hook(note) for module in norms]
    yield pending
    for hook in hooks:
        hook.remove()


def trained(case: Case, model: Any, data: Dataset) -> list[float]:
    """Train a model for an epoch in PyTorch; return the losses of the mini-batches."""
    losses, order = [], epoch_order(SEED, 0, data.n_train)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.9, weight_decay=5e-4)
    with by_averages(model.train()) as pending:
        for first in range(0, data.n_train, BATCH):
            chosen = order[first : first + BATCH]
            logits = model(case.inputs(data, data.train_images[chosen]))
            labels = torch.from_numpy(data.train_labels[chosen])
            loss = nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            for module, mean, variance in pending:
                module.running_mean.lerp_(mean, module.momentum)
                module.running_var.lerp_(variance, module.momentum)
                module.num_batches_tracked += 1
            pending.clear()
    return losses


@pytest.mark.parametrize("devices", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_training_is_that_of_pytorch(name: str, devices: int) -> None:
    """First loss, twenty steps' weights, and the logits of the test."""
    case, data = CASES[name], CASES[name].data(BATCH * STEPS)
    model, peer = case.model(), case.model()
    network = emuchain.from_torch(model, case.example())
    run = emuchain.train(network, data=data, devices=devices, **SETTINGS)
    losses, state = trained(case, peer, data), run.state_dict()
    assert run.steps["loss"][0] == pytest.approx(losses[0], rel=1e-5)
    for key, expected in peer.state_dict().items():
        assert state[key].dtype == expected.dtype
        apart = (state[key] - expected).abs().max()
        assert apart <= 1e-4 * max(1, expected.abs().max()), key
    model.load_state_dict(state)
    tests = case.inputs(data, data.test_images)
    found, logits = emuchain.predict(run, tests), model.eval()(tests).detach().numpy()
    assert np.abs(found - logits).max() <= 1e-5 * np.abs(logits).max()
    labels = torch.from_numpy(data.test_labels)
    loss = nn.functional.cross_entropy(torch.from_numpy(logits).flatten(0, -2), labels.flatten())
    assert run.history["test_loss"][-1] == pytest.approx(loss.item(), rel=1e-5)


@pytest.mark.parametrize("name", ["cnn", "series", "vit"])
def test_weights_do_not_depend_on_the_mapping(name: str) -> None:
    case, data = CASES[name], CASES[name].data(24)
    network = emuchain.from_torch(case.model(), case.example())
    one, *others = (
        emuchain.train(network, data=data, devices=devices, **SETTINGS).state_dict()
        for devices in (1, 2, 3)
    )
    assert all(torch.equal(one[key], other[key]) for other in others for key in one)


def test_ties_are_one_tensor() -> None:
    case, data = CASES["tied"], CASES["tied"].data(BATCH)
    model: Any = case.model()
    assert isinstance(model, Tied)
    run = emuchain.train(emuchain.from_torch(model, case.example()), data=data, **SETTINGS)
    state = run.state_dict()
    assert state["head.weight"] is state["embedding.weight"]
    before = model.positions.detach().clone()
    model.load_state_dict(state)
    assert model.head.weight is model.embedding.weight
    # of positions that no sample has, nothing is trained
    assert torch.equal(model.positions[:, -2:], before[:, -2:])
    assert not torch.equal(model.positions[:, :-2], before[:, :-2])


def test_frozen_layers_rest() -> None:
    case, data = CASES["cnn"], CASES["cnn"].data(2 * BATCH)
    model = case.model()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    network = emuchain.from_torch(model, case.example())
    state = emuchain.train(network, data=data, freeze=["0"], **SETTINGS).state_dict()
    same = {key for key in state if torch.equal(state[key], before[key])}
    assert same == {key for key in state if key.startswith(("0.", "1."))}
    assert state["5.num_batches_tracked"] == 2


def test_a_plan_a_checkpoint_and_seeds_know_the_model(tmp_path: Path, one_line: Any) -> None:
    case, data = CASES["cnn"], CASES["cnn"].data(2 * BATCH)
    network = emuchain.from_torch(case.model(), case.example())
    whole = emuchain.train(network, data=data, epochs=2, **SETTINGS).state_dict()
    plan = emuchain.plan(network, epochs=2, **SETTINGS)
    of_plan = emuchain.train(plan, data=data).state_dict()
    assert all(torch.equal(whole[key], of_plan[key]) for key in whole)
    path = tmp_path / "run.ckpt"
    emuchain.train(network, data=data, epochs=1, checkpoint=path, **SETTINGS)
    resumed = emuchain.train(network, data=data, epochs=2, resume=path).state_dict()
    assert all(torch.equal(whole[key], resumed[key]) for key in whole)
    assert resumed["1.num_batches_tracked"] == 4
    other = emuchain.from_torch(CASES["resnet"].model(), case.example(), name=network.name)
    with pytest.raises(InputError, match="give the model that the run began with") as error:
        emuchain.train(other, data=data, epochs=2, resume=path)
    assert one_line(error)
    settings = {key: value for key, value in SETTINGS.items() if key != "seed"}
    runs = emuchain.train(network, data=data, seeds=2, seed=SEED, epochs=2, **settings)
    first, second = (run.state_dict() for run in runs.results)
    assert all(torch.equal(whole[key], first[key]) for key in whole)
    assert not torch.equal(first["0.weight"], second["0.weight"])


def test_given_weights_come_before_those_of_the_model(tmp_path: Path) -> None:
    case, data = CASES["cnn"], CASES["cnn"].data(BATCH)
    model = case.model()
    network = emuchain.from_torch(model, case.example())
    out = tmp_path / "first.h5"
    emuchain.train(network, data=data, out=out, **SETTINGS)
    nothing = {**SETTINGS, "learning_rate": 1e-30, "weight_decay": 0}
    going_on = emuchain.train(network, data=data, init=out, **nothing).state_dict()
    trained_state = emuchain.train(network, data=data, **SETTINGS).state_dict()
    assert torch.equal(going_on["0.weight"], trained_state["0.weight"])
    anew = emuchain.train(network, data=data, new_layers=["9"], **nothing).state_dict()
    assert torch.equal(anew["0.weight"], model[0].weight)
    assert not torch.equal(anew["9.weight"], model[9].weight)


def test_files_have_the_names_of_the_model(tmp_path: Path) -> None:
    """Results, a checkpoint, and what is exported of them: the state of results in memory."""
    case, data = CASES["cnn"], CASES["cnn"].data(2 * BATCH)
    network = emuchain.from_torch(case.model(), case.example())
    files = {"out": tmp_path / "run.h5", "checkpoint": tmp_path / "run.ckpt"}
    state = emuchain.train(network, data=data, **files, **SETTINGS).state_dict()
    assert state["1.num_batches_tracked"] == 2
    states = [emuchain.results(files["out"]).state_dict()]
    for file in files.values():
        emuchain.export(file, tmp_path / "w.pt")
        states.append(torch.load(tmp_path / "w.pt", weights_only=True))
    for other in states:
        assert list(other) == list(state)
        assert all(torch.equal(other[key], state[key]) for key in state)
    nothing = {**SETTINGS, "learning_rate": 1e-30, "weight_decay": 0}
    again = emuchain.train(network, data=data, init=tmp_path / "w.pt", **nothing).state_dict()
    assert torch.equal(again["0.weight"], state["0.weight"])


def test_layers_without_gradients_are_frozen(tmp_path: Path) -> None:
    """In memory, and where a checkpoint goes on."""
    case, data = CASES["cnn"], CASES["cnn"].data(2 * BATCH)
    model = case.model()
    model[0].requires_grad_(False)
    model[1].requires_grad_(False)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    network, path = emuchain.from_torch(model, case.example()), tmp_path / "run.ckpt"
    state = emuchain.train(network, data=data, checkpoint=path, **SETTINGS).state_dict()
    later = emuchain.train(data=data, resume=path, epochs=2).state_dict()
    for made in (state, later):
        same = {key for key in made if torch.equal(made[key], before[key])}
        assert same == {key for key in made if key.startswith(("0.", "1."))}
    assert not torch.equal(state["4.weight"], later["4.weight"])


def test_a_tied_pair_that_differs_is_refused(tmp_path: Path, one_line: Any) -> None:
    case, data = CASES["tied"], CASES["tied"].data(BATCH)
    model = case.model()
    network = emuchain.from_torch(model, case.example())
    state = model.state_dict()
    torch.save({**state, "head.weight": state["head.weight"] + 1}, tmp_path / "w.pt")
    with pytest.raises(InputError, match=r"are one tensor in Tied, but differ in") as error:
        emuchain.train(network, data=data, init=tmp_path / "w.pt", **SETTINGS)
    assert one_line(error)
