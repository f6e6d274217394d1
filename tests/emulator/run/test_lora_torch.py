"""LoRA beside PyTorch, whose formula is written out here: the same steps, and merged weights under
the model's names, in its `state_dict` and in files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.device import epoch_order

from ..from_torch_models import CASES, Case, nn, torch

BATCH, SEED = 6, 3
RATE = 0.1
"""At 0.5 the loss rises from 2 to 77 in ten steps, and what is rounded differently with it."""
SETTINGS: dict[str, Any] = {
    **{"batch": BATCH, "micro_batch": 2, "schedule": "sync", "seed": SEED, "progress": "none"},
    **{"learning_rate": RATE, "momentum": 0.0, "weight_decay": 0.0, "memory": "ignored"},
}
LORAS: dict[str, tuple[str, str, dict[str, str]]] = {
    "maps": ("cnn", "r=3,alpha=6,on=4,9", {"4": "4", "9": "9"}),
    "tokens": (
        "vit",
        "r=2,alpha=5,on=*linear*,head",
        {
            "head": "head",
            **{
                f"encoder_layers_{block}_linear{place}": f"encoder.layers.{block}.linear{place}"
                for block in (0, 1)
                for place in (1, 2)
            },
        },
    ),
}


class Adapted(nn.Module):  # type: ignore[misc, name-defined]  # torch is optional
    """A module that rests, plus alpha / r · B (A x), from A on."""

    def __init__(self, own: Any, a: Any, factor: float) -> None:
        super().__init__()
        self.own, self.factor = own, factor
        self.a = torch.tensor(a, dtype=torch.float64)
        if isinstance(own, nn.Linear):
            self.a = self.a.flatten(1)
        self.a = nn.Parameter(self.a)
        self.b = nn.Parameter(torch.zeros(own.weight.shape[0], len(a), dtype=torch.float64))

    @property
    def weight(self) -> Any:
        """What attention's module looks at before it takes its fast way."""
        return self.own.weight

    @property
    def bias(self) -> Any:
        """The module's own."""
        return self.own.bias

    def forward(self, x: Any) -> Any:
        """Return the sum."""
        if isinstance(self.own, nn.Linear):
            return self.own(x) + self.factor * (x @ self.a.T) @ self.b.T
        functional = nn.functional
        down = functional.conv2d(x, self.a, None, self.own.stride, self.own.padding)
        return self.own(x) + self.factor * functional.conv2d(down, self.b[..., None, None])


def peer(case: Case, start: Any, names: dict[str, str], factor: float) -> tuple[Any, Any]:
    """The model in double precision with adapters, and these by layer."""
    model = case.model().double()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    adapted = {}
    for layer, path in names.items():
        parent, _, name = path.rpartition(".")
        own = model.get_submodule(path)
        adapted[layer] = Adapted(own, start[f"{layer}_lora_a"]["weight"], factor)
        setattr(model.get_submodule(parent), name, adapted[layer])
    model.train()
    for module in model.modules():  # frozen averages rest
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    return model, adapted


@pytest.mark.parametrize(("steps", "devices"), [(1, 1), (10, 3)])
@pytest.mark.parametrize("name", LORAS)
def test_steps_are_those_of_pytorch(name: str, steps: int, devices: int) -> None:
    """After one step B is its gradient alone, to 1e-5; and after ten both."""
    kind, lora, names = LORAS[name]
    case, data = CASES[kind], CASES[kind].data(BATCH * steps)
    network = emuchain.from_torch(case.model(), case.example())
    keys = {**SETTINGS, "lora": lora, "devices": devices}
    start = emuchain.train(network, data=data, **{**keys, "learning_rate": 1e-30}).weights
    run = emuchain.train(network, data=data, **keys)
    factor = emuchain.plan(network, **keys).config.lora.factor
    model, adapted = peer(case, start, names, factor)
    learnt = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert len(learnt) == 2 * len(names)
    optimizer, order = torch.optim.SGD(learnt, RATE), epoch_order(SEED, 0, data.n_train)
    for first in range(0, data.n_train, BATCH):
        chosen = order[first : first + BATCH]
        logits = model(case.inputs(data, data.train_images[chosen]).double())
        labels = torch.from_numpy(data.train_labels[chosen])
        loss = nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        here = run.steps["loss"][first // BATCH]
        assert here == pytest.approx(loss.item(), rel=1e-5)
    for layer, module in adapted.items():
        for end, theirs in (("a", module.a), ("b", module.b)):
            own, expected = run.weights[f"{layer}_lora_{end}"]["weight"], theirs.detach().numpy()
            apart = np.abs(own.reshape(expected.shape) - expected).max()
            assert np.abs(expected).max() > 0
            assert apart <= 1e-5 * np.abs(expected).max(), (layer, end)


@pytest.mark.parametrize("name", LORAS)
def test_merged_weights_go_back_into_the_model(name: str, tmp_path: Path) -> None:
    """Under its names, from results, files and exports, and they compute what adapters did."""
    kind, lora, names = LORAS[name]
    case, data = CASES[kind], CASES[kind].data(BATCH * 3)
    model, out = case.model(), tmp_path / "run.h5"
    network = emuchain.from_torch(model, case.example())
    run = emuchain.train(network, data=data, lora=lora, out=out, **SETTINGS)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    state = run.state_dict()
    model.load_state_dict(state, strict=True)
    changed = {key for key in state if not torch.equal(state[key], before[key])}
    assert changed == {f"{path}.weight" for path in names.values()}
    tests = case.inputs(data, data.test_images)
    expected = model.eval()(tests).detach().numpy()
    for logits in (emuchain.predict(run, tests), run.to_torch()(tests).detach().numpy()):
        assert np.abs(logits - expected).max() <= 1e-5 * np.abs(expected).max()
    labels = torch.from_numpy(data.test_labels)
    flat = torch.from_numpy(expected).flatten(0, -2)
    loss = nn.functional.cross_entropy(flat, labels.flatten()).item()
    assert run.history["test_loss"][-1] == pytest.approx(loss, rel=1e-5)
    assert emuchain.evaluate(run, data=data).test_loss == pytest.approx(loss, rel=1e-5)
    emuchain.export(run, tmp_path / "merged.pt")
    saved = torch.load(tmp_path / "merged.pt", weights_only=True)
    for again in (saved, emuchain.results(out).state_dict()):
        assert all(torch.equal(again[key], own) for key, own in state.items())


def test_adapters_alone_have_the_modules_of_the_model(tmp_path: Path) -> None:
    """As PEFT's files: of `Linear` two dimensions, of `Conv2d` four; and they add up to the merged
    weights.
    """
    of_torch = pytest.importorskip("safetensors.torch")
    for kind, lora, names in LORAS.values():
        case, data = CASES[kind], CASES[kind].data(BATCH)
        model = case.model()
        network = emuchain.from_torch(model, case.example())
        run = emuchain.train(network, data=data, lora=lora, **SETTINGS)
        emuchain.export(run, tmp_path / "adapter.safetensors", adapter=True)
        found, merged = of_torch.load_file(tmp_path / "adapter.safetensors"), run.state_dict()
        keys = emuchain.plan(network, lora=lora, **SETTINGS).config.lora
        assert len(found) == 2 * len(names)
        for path in names.values():
            a, b = (found[f"base_model.model.{path}.lora_{end}.weight"].double() for end in "AB")
            own = model.get_submodule(path).weight.detach()
            assert a.dim() == b.dim() == own.dim()
            added = keys.factor * (b.flatten(1) @ a.flatten(1)).reshape(own.shape)
            assert torch.equal(merged[f"{path}.weight"], (own.double() + added).float())


def test_merged_weights_are_where_new_training_begins(tmp_path: Path) -> None:
    """Of a run with adapters, another one has the merged weights, with new adapters or none."""
    case, data = CASES["cnn"], CASES["cnn"].data(BATCH * 2)
    network = emuchain.from_torch(case.model(), case.example())
    out, checkpoint = tmp_path / "run.h5", tmp_path / "run.ckpt"
    keys = {**SETTINGS, "data": data}
    run = emuchain.train(network, lora="r=2,on=4,9", out=out, checkpoint=checkpoint, **keys)
    merged, still = run.state_dict(), {**keys, "learning_rate": 1e-30}
    for init in (out, checkpoint):
        again = emuchain.train(network, init=init, lora="r=1,on=9", **still)
        assert set(again.weights) == {"0", "4", "9", "9_lora_a", "9_lora_b"}
        assert torch.equal(again.state_dict()["4.weight"], merged["4.weight"])
    resumed = emuchain.train(network, resume=checkpoint, data=data, epochs=2)
    longer = emuchain.train(network, lora="r=2,on=4,9", epochs=2, **keys)
    assert all(
        array.tobytes() == longer.weights[layer][name].tobytes()
        for layer, arrays in resumed.weights.items()
        for name, array in arrays.items()
    )


def test_two_ways_of_freezing_are_one_too_many() -> None:
    case = CASES["cnn"]
    network = emuchain.from_torch(case.model(), case.example())
    with pytest.raises(InputError, match="`freeze` = '0': with `lora` all layers rest"):
        emuchain.plan(network, freeze=["0"], lora="r=2,on=9")
