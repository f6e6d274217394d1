"""The public functions with arguments of any type: each works, or says in one line what is
right.
"""

from __future__ import annotations

import functools
import inspect
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError, native

OneLine = Callable[..., str]
FUNCTIONS = [name for name in emuchain.__all__ if inspect.isfunction(getattr(emuchain, name, None))]
IMAGES = np.random.default_rng(3).integers(0, 256, (12, 3, 8, 8), np.uint8)
LABELS = np.arange(12) % 3


def small() -> dict[str, Any]:
    """A network that trains in no time."""
    layers = [
        {"type": "conv", "channels": 4, "kernel": 3},
        {"type": "fc", "features": 3},
        {"type": "softmax"},
    ]
    return {"name": "small", "input": [3, 8, 8], "layers": layers}


def data_set(**changed: Any) -> emuchain.Dataset:
    """Twelve images of three classes, six of which are the test."""
    arrays = {
        "train_images": IMAGES,
        "train_labels": LABELS,
        "test_images": IMAGES[:6],
        "test_labels": LABELS[:6],
    }
    return emuchain.Dataset("own", **{**arrays, "classes": ("a", "b", "c"), **changed})


class Module:
    """What looks like a module of PyTorch."""

    def state_dict(self) -> None: ...
    def forward(self) -> None: ...


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    """What functions return, of which others take some."""
    network, data = emuchain.load_network(small()), data_set()
    made = {
        "network": network,
        "cluster": emuchain.load_cluster("vc709"),
        "data": data,
        "plan": emuchain.plan(network, devices=2, samples=12, batch=6),
        "run": emuchain.train(network, data=data, batch=6, progress="none"),
    }
    return made


def odd(objects: Mapping[str, Any]) -> dict[str, Any]:
    """Values of all types, most of which nothing takes."""
    numbers = {
        "zero": 0,
        "three": 3,
        "minus one": -1,
        "large": 10**30,
        "half": 2.5,
        "nan": float("nan"),
        "complex": 1j,
    }
    of_numpy = {
        **{
            "np.int64": np.int64(4),
            "np.float32": np.float32(2),
            "np.bool": np.bool_(True),
            "array": np.array([1, 2]),
        },
        **{
            "array of floats": np.zeros((2, 3)),
            "no array": np.array(3),
            "objects": np.array([None]),
        },
    }
    others = {
        **{
            "None": None,
            "True": True,
            "empty": "",
            "text": "nonsense",
            "bytes": b"x",
            "list": [],
            "mapping": {},
        },
        **{
            "numbered": {3: 4},
            "tuple": (),
            "set": {1},
            "names": ["a", 3],
            "object": object(),
            "path": pathlib.Path("no"),
        },
        **{
            "module": np,
            "class": int,
            "function": len,
            "generator": iter((1, 2)),
            "PyTorch": Module(),
        },
    }
    return {**numbers, **of_numpy, **others, **objects}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_argument(
    objects: Mapping[str, Any], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """In each place, by position where it has one; the other places have what they should have."""
    monkeypatch.chdir(tmp_path)
    function = getattr(emuchain, name)
    parameters = inspect.signature(function).parameters
    good = {
        **{
            "where": "shapes",
            "path": "none.h5",
            "out": "out.safetensors",
            "files": "none.csv",
            "type": "vc709",
            "constants": "none.toml",
        },
        "thing": None,
        **{"model": Module(), "example": IMAGES, "samples": IMAGES, "prompt": "a"},
        **objects,
        **{"load_network": {"network": small()}, "load_cluster": {"cluster": "vc709"}}.get(
            name, {}
        ),
        **({"run": objects["plan"]} if name == "rate_range" else {}),
    }
    usual = {
        "train": {
            "network": objects["network"],
            "data": objects["data"],
            "batch": 6,
            "progress": "none",
        },
        "simulate": {"samples": 12},
        "study": {
            "network": objects["network"],
            "data": objects["data"],
            "batch": 6,
            **{"seeds": 1, "jobs": 1},
        },
        "sweep": {"jobs": 1},
    }.get(name, {})
    for place, parameter in parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        needed = {
            other: good[other]
            for other, its in parameters.items()
            if its.default is its.empty and its.kind is its.POSITIONAL_OR_KEYWORD
        }
        for value in odd(objects).values():
            if place in ("on_step", "on_epoch", "observer") and callable(value):
                continue  # it fails by itself where it is called
            keys = {**needed, **usual, place: value}
            if (name, place) == ("train", "network") and isinstance(value, emuchain.Plan):
                keys.pop("batch"), keys.pop("progress")
            args = [keys.pop(place)] if parameter.kind is parameter.VAR_POSITIONAL else []
            if name == "report" and not args:
                args = [objects["run"]]
            try:
                function(*args, **keys)
            except InputError as error:
                assert len(str(error).splitlines()) == 1, (place, value)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_calls_that_no_function_takes(name: str, one_line: OneLine) -> None:
    function = getattr(emuchain, name)
    if name != "report":  # of any number of runs
        with pytest.raises(InputError, match=f"{name}: too many positional arguments"):
            function(*range(20))
    if not any(
        its.kind is its.VAR_KEYWORD for its in inspect.signature(function).parameters.values()
    ):
        with pytest.raises(
            InputError, match=f"{name}: (got an unexpected keyword|missing a required)"
        ) as error:
            function(nonsense=3)
        assert one_line(error)


SETTINGS: dict[str, tuple[Any, Any]] = {
    "devices": (np.int64(2), 2),
    "batch": (np.array(6), 6),
    "learning_rate": (np.float32(0.1), 0.1),
    "error_feedback": (np.bool_(False), False),
    "mean": (np.full(3, 0.5), "0.5,0.5,0.5"),
    "std": (np.full(3, np.float32(0.25)), "0.25,0.25,0.25"),
    "crop": ((np.int32(8), 8), "8,8"),
    "schedule": (np.str_("sync"), "sync"),
    "out": (pathlib.Path("run.h5"), "run.h5"),
    "lr_schedule": (np.str_("steps:at=1,2"), "steps:at=1,2,factor=0.1"),
}


def test_data_in_the_place_of_the_cluster(one_line: OneLine) -> None:
    keys: Any = {"batch": 6, "progress": "none"}
    data, plain = IMAGES.astype(np.float32), data_set()
    second = emuchain.train(small(), plain, **keys)
    by_name = emuchain.train(small(), "vc709", data=plain, **keys)
    for name, arrays in by_name.weights.items():
        for kind, array in arrays.items():
            np.testing.assert_array_equal(second.weights[name][kind], array)
    assert second.config["data"] == by_name.config["data"]
    assert emuchain.train(small(), (data, LABELS), test_share=0.5, **keys).epochs == 1
    for both in ({"data": plain}, {"data": "shapes"}):
        with pytest.raises(InputError, match="data in its place only without `data`") as error:
            emuchain.train(small(), (data, LABELS), **both, **keys)
        assert one_line(error)
    with pytest.raises(InputError, match="`cluster`: is 3; should be text"):
        emuchain.train(small(), 3)


@pytest.mark.parametrize("key", SETTINGS)
def test_settings_of_numpy_and_paths(key: str) -> None:
    given, kept = SETTINGS[key]
    settings = (
        {"std": (0.25,) * 3} if key == "mean" else {"mean": (0.5,) * 3} if key == "std" else {}
    )
    config = emuchain.plan(small(), **{**settings, key: given}).config
    assert config.model_dump()[key] == kept


def test_descriptions_of_numpy() -> None:
    layers = [
        {**layer, **({"channels": np.int64(4)} if "channels" in layer else {})}
        for layer in small()["layers"]
    ]
    made = emuchain.load_network({"name": "small", "input": np.array([3, 8, 8]), "layers": layers})
    assert made == emuchain.load_network(small())
    board = {
        "name": "b",
        "clock_mhz": np.float32(200),
        "dsp": np.int64(300),
        "on_chip_memory_kbit": np.int64(52_000),
    }
    links = {"bandwidth_gbps": np.float64(8), "latency_ns": 100}
    cluster = emuchain.load_cluster({"name": "a", "boards": [board], "links": links})
    assert cluster.board(0).clock_mhz == 200


def test_paths_and_none(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "small.toml"
    network = emuchain.load_network(small())
    path.write_text(network.text)
    assert emuchain.load_network(path) == network
    assert emuchain.plan(path, None).cluster.name == "vc709"
    assert emuchain.plan(None, "u280").network.name == "quick-cifar"
    assert (
        emuchain.sweep([path], devices=np.arange(1, 3), jobs=np.int64(1)).rows[-1]["devices"] == 2
    )
    assert (
        emuchain.load_data(pathlib.Path("shapes")).n_train == emuchain.load_data("shapes").n_train
    )


def test_numbers_are_those_that_were_meant() -> None:
    given = {
        "a": [np.float32(0.1), (np.int8(3),)],
        "b": np.eye(2),
        "c": pathlib.Path("d"),
        "e": np.float64(1e-300),
    }
    assert native(given) == {"a": [0.1, (3,)], "b": [[1.0, 0.0], [0.0, 1.0]], "c": "d", "e": 1e-300}


TAKEN: dict[str, dict[str, Any]] = {
    "labels of 32 bits": {
        "train_labels": LABELS.astype(np.int32),
        "test_labels": LABELS[:6].astype(np.uint8),
    },
    "images of 64 bits": {"train_images": IMAGES.astype(np.int64)},
    "another order": {
        "train_images": np.asfortranarray(IMAGES),
        "test_images": IMAGES[:6][::-1][::-1],
    },
    "a list of classes": {"classes": ["a", "b", "c"]},
    "no test": {"test_images": IMAGES[:0], "test_labels": LABELS[:0]},
}


@pytest.mark.parametrize("case", TAKEN)
def test_data_sets_that_are_clear(case: str) -> None:
    run = {"network": small(), "batch": 6, "progress": "none"}
    made, plain = (emuchain.train(**run, data=data_set(**changed)) for changed in (TAKEN[case], {}))
    assert np.array_equal(made.weights["fc1"]["weight"], plain.weights["fc1"]["weight"])


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "float labels": (
        {"train_labels": LABELS.astype(float)},
        "`train_labels`: is of float64; should be whole numbers",
    ),
    "float images": (
        {"train_images": IMAGES / 255},
        "`train_images`: is of float64; should be whole numbers, of uint8",
    ),
    "labels that are true": ({"test_labels": LABELS[:6] > 1}, "`test_labels`: is of bool"),
    "a list of images": (
        {"train_images": IMAGES.tolist()},
        "`train_images`: is of type list; should be an array of",
    ),
    "a list of labels": ({"train_labels": LABELS.tolist()}, "`train_labels`: is of type list"),
    "too few labels": (
        {"train_labels": LABELS[:3]},
        "`train_labels`: has shape (3,); should be (12,), one an image",
    ),
    "labels from 1": (
        {"train_labels": LABELS + 1},
        "`train_labels`: from 1 to 3; should be from 0 to 2",
    ),
    "labels below 0": (
        {"test_labels": LABELS[:6] - 1},
        "`test_labels`: from -1 to 1; should be from 0 to 2",
    ),
    "one place each": (
        {"train_labels": np.eye(3, dtype=int)[LABELS]},
        "`train_labels`: has shape (12, 3)",
    ),
    "images of 16 bits": (
        {"train_images": IMAGES.astype(int) * 256},
        "`train_images`: from 0 to 65280; should be from",
    ),
    "one channel": (
        {"train_images": IMAGES[:, 0]},
        "`train_images`: has shape (12, 8, 8); should be images (N, channels",
    ),
    "two sizes": (
        {"test_images": IMAGES[:6, :, :4]},
        "`test_images` (6, 3, 4, 8); should be images of one shape",
    ),
    "nothing": ({"train_images": IMAGES[:0], "train_labels": LABELS[:0]}, "and some to train on"),
    "no classes": (
        {"classes": ()},
        "`classes`: is of type tuple; should be the names of the classes",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_data_sets_that_are_not(objects: Mapping[str, Any], one_line: OneLine, case: str) -> None:
    changed, message = REFUSED[case]
    for take in (
        lambda data: emuchain.train(small(), data=data, batch=6),
        lambda data: emuchain.evaluate(objects["run"], data),
    ):
        with pytest.raises(InputError) as error:
            take(data_set(**changed))
        assert message in one_line(error)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: emuchain.plan(Module()),
            "`network`: is a module of PyTorch, of which `emuchain.from_torch` makes a",
        ),
        (
            lambda: emuchain.load_network(np),
            "`network`: is the module numpy; should be text, a path or a mapping of",
        ),
        (
            lambda: emuchain.load_data(IMAGES),
            "`where`: is an array of uint8, as `numpy.savez` writes it into a file;",
        ),
        (lambda: emuchain.plan(ranks=0), "`ranks` = 0: should be at least 1"),
        (lambda: emuchain.sweep(jobs=0), "`jobs` = 0: should be a number, at least 1"),
        (
            lambda: emuchain.sweep(target=float("nan")),
            "`target` = nan: should be a number, at least 0",
        ),
        (lambda: emuchain.load_data("text", 0), "`steps`: 0 is too few; should be at least 1"),
        (
            lambda: emuchain.load_network("char-lstm", time_steps=-1),
            "`time_steps` = -1: should be at least 1",
        ),
        *(
            (
                functools.partial(function, changes=changes),
                f"`changes`: is {said}; should be a mapping of names or None",
            )
            for function in (emuchain.plan, emuchain.simulate, emuchain.train)
            for changes, said in (({3: 4}, "of type dict"), (5, "5"), ([1], "of type list"))
        ),
        (lambda: emuchain.train(comm=3), "`comm`: is 3; should be a communicator of mpi4py"),
    ],
)
def test_what_is_right_is_stated(
    call: Callable[[], object], message: str, one_line: OneLine
) -> None:
    with pytest.raises(InputError) as error:
        call()
    assert message in one_line(error)
