"""Models of PyTorch in memory become networks with their weights, and are left as they are; what
cannot be one is refused in a line.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.network import Network, TorchNetwork, onnx_weights, trained_state

from ..from_torch_models import CASES, ResNet, Vit, cnn, nn, torch

OneLine = Callable[..., str]
IMAGES = (2, 3, 8, 8)


@pytest.fixture(scope="module", params=CASES)
def made(request: pytest.FixtureRequest) -> tuple[Any, TorchNetwork]:
    """A model, and its network."""
    case = CASES[request.param]
    model = case.model()
    return model, emuchain.from_torch(model, case.example())


def test_its_weights_are_those_of_a_file_of_the_same_export(
    made: tuple[Any, TorchNetwork], tmp_path: Path
) -> None:
    """The file is written of the same graph, and read as other ONNX files are."""
    model, network = made
    path = tmp_path / f"{network.name}.onnx"
    [case] = [case for case in CASES.values() if str(case.make()) == str(model)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            model.train(), (case.example(),), dynamo=True, optimize=False, verbose=False
        )
    program.save(path)
    of_file, own = onnx_weights(str(path)), network.state.first_weights()
    for theirs, ours in zip(of_file.values(), own.values(), strict=True):
        assert theirs.keys() == ours.keys()
        assert all(np.array_equal(theirs[name], ours[name]) for name in ours)
    loaded = emuchain.load_network(path)
    assert (loaded.macs, loaded.parameters) == (network.macs, network.parameters)
    assert loaded.channels_first == network.channels_first


def test_untrained_weights_come_back_as_they_were(made: tuple[Any, TorchNetwork]) -> None:
    """And other ones are where PyTorch has them."""
    model, network = made
    before = {key: value.clone() for key, value in model.state_dict().items()}
    weights = network.state.first_weights()
    state = trained_state(network, weights, 0, (), "here")
    assert list(state) == list(before)
    assert all(torch.equal(state[key], before[key]) for key in before)
    doubled = {
        layer: {name: 2 * array for name, array in arrays.items()}
        for layer, arrays in weights.items()
    }
    model.load_state_dict(trained_state(network, doubled, 7, (), "here"))
    trained = {key: 2 * value for key, value in before.items()}
    if "positions" in before and before["positions"].shape[1] > 8:
        trained["positions"][:, 8:] = before["positions"][:, 8:]
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key] + 7 if key.endswith("tracked") else trained[key]), key
    model.load_state_dict(before)


def test_positions_that_begin_at_zero_are_not_one_shift(tmp_path: Path) -> None:
    """Of a file, too, whose numbers look like those of one type of all tokens."""
    model = Vit()
    torch.nn.init.zeros_(model.positions)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            model.train(), (torch.zeros(IMAGES),), dynamo=True, optimize=False, verbose=False
        )
    program.save(tmp_path / "vit.onnx")
    networks = (
        emuchain.from_torch(model, torch.zeros(IMAGES)),
        emuchain.load_network(tmp_path / "vit.onnx"),
    )
    for network in networks:
        kinds = [step.operation.type for layer in network.layers for step in layer.sfu]
        assert "positions" in kinds and "shift" not in kinds


def test_layers_are_called_as_modules() -> None:
    network = emuchain.from_torch(ResNet(), torch.zeros(IMAGES), name="mine")
    assert network.name == "mine"
    names = {layer.name for layer in network.layers}
    assert names >= {"conv1", "layer1_0_conv1", "layer2_0_downsample_0", "fc"}
    assert emuchain.from_torch(ResNet(), torch.zeros(IMAGES)).name == "ResNet"


def test_it_is_a_network_for_all_functions() -> None:
    network = emuchain.from_torch(cnn(), torch.zeros(IMAGES))
    assert isinstance(network, Network)
    plain = emuchain.load_network({"name": network.name, **_keys(network)})
    assert network.bare == plain
    keys: dict[str, Any] = {"cluster": "u55c", "devices": 2}
    assert str(emuchain.plan(network, **keys)) == str(emuchain.plan(plain, **keys))
    times = [emuchain.simulate(one, samples=64, **keys) for one in (network, plain)]
    assert times[0].virtual_time_ps == times[1].virtual_time_ps
    sweeps = [emuchain.sweep(one, "u55c", devices=[1, 2], jobs=1).rows for one in (network, plain)]
    assert sweeps[0] == sweeps[1]


def _keys(network: Network) -> dict[str, Any]:
    from emuchain.emulator.common import read_description

    return dict(read_description(network.text))


def test_a_head_by_a_closure_is_tied() -> None:
    """It holds the model, not the copy of which the graph is."""

    class Closed(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(9, 6)
            self.head = lambda x: x @ self.embedding.weight.t() * 0.5

        def forward(self, x: Any) -> Any:
            return self.head(self.embedding(x))

    network = emuchain.from_torch(Closed(), torch.zeros(2, 4, dtype=torch.long))
    assert network.layers[-1].tied is not None
    assert [*network.state.tensors] == ["embedding.weight"]


def test_dropout_and_batch_normalisation_are_those_of_training() -> None:
    """Whatever mode the model is in."""
    for model in (cnn(0.25), cnn(0.25).eval()):
        network = emuchain.from_torch(model, torch.zeros(IMAGES))
        steps = [step.operation for layer in network.layers for step in layer.sfu]
        assert [step.momentum for step in steps if step.type == "batch-norm"] == [0.1, 0.3]
        assert [step.rate for step in steps if step.type == "dropout"] == [0.25]


def test_the_model_is_left_as_it_was() -> None:
    """Its modes, parameters, gradients and buffers; and PyTorch's random numbers."""
    model = cnn(0.25)
    model[1].eval()
    model(torch.randn(IMAGES)).sum().backward()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    grads = [parameter.grad.clone() for parameter in model.parameters()]
    modes = [module.training for module in model.modules()]
    random = torch.random.get_rng_state()
    network = emuchain.from_torch(model, torch.randn(IMAGES, generator=torch.Generator()))
    assert torch.equal(torch.random.get_rng_state(), random)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(
        torch.equal(parameter.grad, grad)
        for parameter, grad in zip(model.parameters(), grads, strict=True)
    )
    with torch.no_grad():  # and the network has weights of its own
        model[0].weight.zero_()
    assert network.state.first_weights()["0"]["weight"].any()


def test_one_sample_and_many_make_the_same_network() -> None:
    for case in CASES.values():
        model = case.model()
        one, many = (emuchain.from_torch(model, case.example(count)) for count in (1, 9))
        assert one == many


def test_equal_parameters_are_trained_apart() -> None:
    """Two modules that begin alike are two."""
    model = nn.Sequential(
        *(nn.Conv2d(3, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 3, 3, padding=1)),
        *(nn.Flatten(), nn.Linear(192, 5)),
    )
    model[2].load_state_dict(model[0].state_dict())
    network = emuchain.from_torch(model, torch.zeros(IMAGES))
    weights = network.state.first_weights()
    weights["0"]["weight"] = weights["0"]["weight"] + 1
    state = trained_state(network, weights, 0, (), "here")
    assert torch.equal(state["0.weight"], model[0].weight + 1)
    assert torch.equal(state["2.weight"], model[2].weight)


def test_types_and_what_is_unused_stay() -> None:
    model = Written(lambda self, x: self.net(x), net=cnn(), unused=nn.Linear(3, 3)).double()
    model.register_buffer("note", torch.tensor([3, 4]))
    network = emuchain.from_torch(model, torch.zeros(IMAGES, dtype=torch.double))
    state = trained_state(network, network.state.first_weights(), 2, (), "here")
    assert state.keys() == model.state_dict().keys()
    assert torch.equal(state["unused.weight"], model.unused.weight)
    assert torch.equal(state["note"], torch.tensor([3, 4]))
    assert {state[key].dtype for key in state if key.endswith("weight")} == {torch.double}
    assert torch.equal(state["net.0.weight"].float(), model.net[0].weight.float())


class Written(nn.Module):  # type: ignore[misc, name-defined]  # torch is optional
    """A module within a model, and what it makes of maps of 3 channels."""

    def __init__(self, forward: Callable[[Any, Any], Any], **own: Any) -> None:
        super().__init__()
        self.written = forward
        for name, module in own.items():
            setattr(self, name, module)

    def forward(self, x: Any) -> Any:
        """Return the maps."""
        return self.written(self, x)


def within(module: Any) -> Any:
    """A classifier with a module that keeps maps of 3 channels, called `body.inner`."""
    model = nn.Sequential()
    model.add_module("conv", nn.Conv2d(3, 3, 3, padding=1))
    model.add_module("body", nn.Sequential())
    model.body.add_module("inner", module)
    model.add_module("flat", nn.Flatten())
    model.add_module("fc", nn.Linear(192, 5))
    return model


def branching(self: Any, x: Any) -> Any:
    """Maps that depend on values in Python."""
    return x if x.sum() > 0 else -x


def half_frozen() -> Any:
    """A model with a layer one of whose parameters needs no gradients."""
    model = within(nn.ReLU())
    model.conv.weight.requires_grad_(False)
    return model


def shared() -> Any:
    """A model that uses one convolution twice, under two names."""
    model = within(nn.Conv2d(3, 3, 3, padding=1))
    model.body.inner.weight = model.conv.weight
    return model


def normed() -> Any:
    """A convolution whose weights are parametrised."""
    return torch.nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 3, 3, padding=1))


class SparseMoeBlock(nn.Module):  # type: ignore[misc, name-defined]
    """Two experts, of which a router takes one for each row, or weights both."""

    def __init__(self, *, picks: bool) -> None:
        super().__init__()
        self.gate, self.picks = nn.Linear(8, 2), picks
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, x: Any) -> Any:
        """Return the rows."""
        shares = self.gate(x).softmax(-1)
        if self.picks:
            return self.experts[int(shares.sum((0, 1)).argmax())](x)
        return sum(shares[..., n : n + 1] * expert(x) for n, expert in enumerate(self.experts))


class MambaMixer(nn.Module):  # type: ignore[misc, name-defined]
    """A state of each channel, by factors of the row."""

    def forward(self, x: Any) -> Any:
        """Return the states."""
        state, states = x[:, 0], []
        for row in range(x.shape[1]):
            state = state * torch.exp(x[:, row]) + x[:, row]
            states.append(state)
        return torch.stack(states, 1)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "experts": (
        lambda: within(SparseMoeBlock(picks=False)),
        r"'body\.inner(\.gate)?'.*; 'SparseMoeBlock' is of a mixture of experts \(MoE\), where a",
    ),
    "a router": (
        lambda: within(SparseMoeBlock(picks=True)),
        r"'body\.inner(\.gate)?'.*; 'SparseMoeBlock' is of a mixture of experts \(MoE\), where a",
    ),
    "states of rows": (
        lambda: within(MambaMixer()),
        r"'body\.inner'.*; 'MambaMixer' is of a state-space model \(Mamba\), where",
    ),
    "a plain recurrent layer": (
        lambda: within(nn.RNN(6, 6)),
        r"RNN 'body\.inner': is not .* nn\.GRU",
    ),
    "an operation": (lambda: within(nn.Softshrink()), r"'body\.inner'.*unknown operator"),
    "a branch on values": (
        lambda: within(Written(branching)),
        r"in Written 'body\.inner': PyTorch cannot export it: .*torch\.export\.export",
    ),
    "weights that are computed": (
        lambda: within(normed()),
        r"computed of the parameter 'body\.inner\.parametrizations.*remove_parametrizations",
    ),
    "a scale that is learnt": (
        lambda: within(Written(lambda self, x: x * self.alpha, alpha=nn.Parameter(torch.ones(1)))),
        r"'body\.inner'",
    ),
    "a norm without parameters": (
        lambda: within(nn.BatchNorm2d(3, affine=False)),
        r"`scale` of layer conv.*affine=True",
    ),
    "half a frozen layer": (
        half_frozen,
        r"'conv\.weight' has requires_grad=False, but others of layer conv train",
    ),
    "one parameter in two layers": (shared, r"(conv|body\.inner)\.weight"),
    "a lazy module": (
        lambda: within(nn.LazyConv2d(3, 3, padding=1)),
        r"'body\.inner\.weight' has no shape yet; call the model once",
    ),
    "averages of all mini-batches": (
        lambda: within(nn.BatchNorm2d(3, momentum=None)),
        r"'body\.inner'",
    ),
    "no averages": (
        lambda: within(nn.BatchNorm2d(3, track_running_stats=False)),
        r"'body\.inner'|of layer conv",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_by_the_module(name: str, one_line: OneLine) -> None:
    make, message = REFUSED[name]
    with pytest.raises(InputError, match=message) as error:
        emuchain.from_torch(make(), torch.zeros(IMAGES), name="mine")
    assert one_line(error).startswith("model mine")


WRONG: dict[str, tuple[Callable[[], tuple[Any, ...]], str]] = {
    "no example": (lambda: (cnn(),), "missing a required argument: 'example'"),
    "no module": (lambda: ({"a": 1}, torch.zeros(IMAGES)), "should be a torch.nn.Module"),
    "a class": (lambda: (ResNet, torch.zeros(IMAGES)), "`model`: .*should be a torch.nn.Module"),
    "an array": (lambda: (cnn(), np.zeros(IMAGES)), "`example`: .*should be one torch.Tensor"),
    "no inputs": (lambda: (cnn(), ()), "`example`: .*should be one torch.Tensor"),
    "several images": (
        lambda: (cnn(), (torch.zeros(IMAGES), torch.zeros(IMAGES))),
        r"2 tensors, one of which is torch.float32 of \(2, 3, 8, 8\); several should be whole",
    ),
    "sides of other samples": (
        lambda: (cnn(), (torch.ones(2, 3).long(), torch.ones(3, 3).long())),
        r"one of which is torch.int64 of \(3, 3\); .* of as many samples",
    ),
    "a number": (lambda: (cnn(), torch.tensor(3.0)), r"`example`: has the shape \(\)"),
    "no samples": (lambda: (cnn(), torch.zeros(0, 3, 8, 8)), r"\(0, 3, 8, 8\); its first axis"),
    "one image without samples": (
        lambda: (cnn(), torch.zeros(3, 8, 8)),
        r"`example` is \(3, 8, 8\): images are \(samples, channels, rows, columns\)",
    ),
    "one sequence without samples": (
        lambda: (CASES["lstm"].model(), torch.zeros(8, 6)),
        r"of samples|PyTorch cannot export it",
    ),
    "other channels": (
        lambda: (cnn(), torch.zeros(2, 4, 8, 8)),
        r"in Conv2d '0': PyTorch cannot export it: .*channels",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_one_line(name: str, one_line: OneLine) -> None:
    arguments, message = WRONG[name]
    with pytest.raises(InputError, match=message) as error:
        emuchain.from_torch(*arguments())
    assert one_line(error)


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_what_the_exporter_needs_is_named(
    monkeypatch: pytest.MonkeyPatch, package: str, one_line: OneLine
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else find(name)
    )
    with pytest.raises(InputError, match=rf"the package {package}: pip install") as error:
        emuchain.from_torch(cnn(), torch.zeros(IMAGES))
    assert one_line(error)


@pytest.mark.parametrize("name", ["two words\n", ""])
def test_names_are_those_of_networks(name: str, one_line: OneLine) -> None:
    with pytest.raises(InputError) as error:
        emuchain.from_torch(cnn(), torch.zeros(IMAGES), name=name)
    assert one_line(error)


def test_nothing_else_imports_torch() -> None:
    code = (
        "import sys, emuchain; emuchain.from_torch; emuchain.plan('quick-cifar');"
        " assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
