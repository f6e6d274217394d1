"""Files of every kind with a name in them, and the commands that read them; for `names`."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
from collections.abc import Callable, Iterator

import numpy as np
from surfaces import TEXTS


def file_named(text: str) -> str:
    """Return a name that a file may have."""
    return text.replace("/", "|").replace("\0", "")


def _toml(text: str) -> str:
    return json.dumps(text).replace("\\udcff", "?").replace("\x7f", "")


PLAN = [
    "plan",
    "simulate",
    "timeline",
    "study compare",
    "study topology",
    "study exchange",
    "explore",
]
ON = [
    ["--devices", "2"],
    ["--devices", "2", "--samples", "4", "--trace", "t.json"],
    ["--devices", "2"],
]
ON += [["--devices", "2"], ["--devices", "2"], ["--workers", "4"], ["--devices", "2"]]
TRAIN = ["train", "--data", "d.h5", "--batch", "20", "--progress", "plain", "--out", "new.h5"]


def _of_a_network(file: str, *more: str) -> Iterator[list[str]]:
    for command, words in zip(PLAN, ON, strict=True):
        plot = [] if command == "explore" else ["--plot", f"{command.split()[-1]}.svg"]
        yield [*command.split(), file, *more, *words, *plot]
    yield ["network", file]
    yield ["rtl", file, "--out", "rtl", *more]
    yield ["sweep", file, "--devices", "1-2", "--csv", "s.csv", "--plot", "s.svg", *more]
    yield [*TRAIN, file, *more]
    yield from _of_results("new.h5")


def _of_results(file: str) -> Iterator[list[str]]:
    yield from (
        ["show", file, "--full"],
        ["report", file, "--out", "r.html"],
        ["retime", file, "--cluster", "vc709"],
    )
    yield from (["evaluate", file], ["export", file, "new.onnx"], ["network", "new.onnx"])


def a_network(text: str) -> Iterator[list[str]]:
    """A network's file, and its name in it."""
    said = TEXTS["net.toml"].replace('"small"', _toml(text))
    for path in (pathlib.Path("named.toml"), pathlib.Path(file_named(text) + ".toml")):
        path.write_text(said if path.name == "named.toml" else TEXTS["net.toml"])
        yield from _of_a_network(str(path))


def a_layer(text: str) -> Iterator[list[str]]:
    """A layer's name, what a layer takes, and keys and values besides."""
    for old, new in (
        ('"conv", ', f'"conv", name = {_toml(text)}, '),
        ('"relu" ', f'"relu", from = {_toml(text)} '),
        ('"conv", ', f'"conv", {_toml(text)} = 1, '),
        ('"relu"', _toml(text)),
    ):
        pathlib.Path("named.toml").write_text(TEXTS["net.toml"].replace(old, new, 1))
        yield from ([command, "named.toml"] for command in ("network", "plan"))
        yield ["rtl", "named.toml", "--out", "rtl"]


def a_cluster(text: str) -> Iterator[list[str]]:
    """A cluster's name and a board's, their files, and keys besides."""
    pathlib.Path("named.toml").write_text(
        TEXTS["cluster.toml"].replace('"mine"', _toml(text)).replace('"board.toml"', '"b.toml"')
    )
    pathlib.Path("b.toml").write_text(TEXTS["board.toml"].replace('"ours"', _toml(text)))
    pathlib.Path("key.toml").write_text(f"{_toml(text)} = 1\n" + TEXTS["cluster.toml"])
    pathlib.Path("kind.toml").write_text(TEXTS["cluster.toml"].replace('"board.toml"', _toml(text)))
    for file in ("named.toml", "key.toml", "kind.toml"):
        yield from _of_a_network("net.toml", "--cluster", file)


def settings(text: str) -> Iterator[list[str]]:
    """Keys and values of a configuration, and of faults."""
    for line in (
        f"{_toml(text)} = 1",
        f"schedule = {_toml(text)}",
        f"out = {_toml(text)}",
        f"compress = {_toml(text)}",
    ):
        pathlib.Path("named.toml").write_text(f"{line}\nsamples = 20\n")
        yield from ([command, "named.toml"] for command in ("train", "plan"))
    pathlib.Path("named.toml").write_text(
        f"[[faults.flips]]\nof = {_toml(text)}\nrate = 1e-6\n{_toml(text)} = 2\n"
    )
    yield ["plan", "net.toml", "--faults", "named.toml"]


def classes(text: str) -> Iterator[list[str]]:
    """Classes and files of images, and of arrays."""
    import h5py

    shutil.rmtree("named", ignore_errors=True)
    shutil.copytree("pictures/train/a", f"named/train/{file_named(text)}")
    shutil.copytree("pictures/train/b", "named/train/b")
    pathlib.Path("named/train/b", file_named(text) + ".gif").write_bytes(b"GIF89a")
    shutil.copy("d.h5", "named.h5")
    with h5py.File("named.h5", "a") as file:
        file["classes"] = [
            text.encode("utf-8", "surrogateescape").replace(b"\0", b""),
            b"b",
            b"c",
            b"d",
        ]
    shutil.copy("d.h5", file_named(text) + ".h5")
    for data in ("named", "named.h5", file_named(text) + ".h5"):
        yield ["data", "info", "--data", data]
        yield ["data", "preview", "--data", data, "--out", "p.png"]
        yield [*TRAIN, "net.toml", "--data", data]
        yield from _of_results("new.h5")


def models(text: str) -> Iterator[list[str]]:
    """Names of an ONNX file's graph, nodes, arrays and operators, and of arrays of weights."""
    import onnx
    import safetensors.numpy

    text = text.replace("\udcff", "?")
    for what in ("graph", "node", "tensor", "operator", "producer"):
        model = onnx.load("net.onnx")
        node, graph = model.graph.node[0], model.graph
        if what == "graph":
            graph.name = graph.doc_string = text
        elif what == "node":
            node.name = node.doc_string = text
        elif what == "tensor":
            graph.input[0].name = text
        elif what == "operator":
            node.op_type = node.domain = text
        else:
            model.producer_name = model.producer_version = text
        onnx.save(model, "named.onnx")
        yield from (
            ["network", "named.onnx"],
            ["plan", "named.onnx"],
            ["rtl", "named.onnx", "--out", "rtl"],
        )
    pathlib.Path("named.safetensors").write_bytes(
        safetensors.numpy.save({text: np.zeros(3, np.float32)})
    )
    yield [*TRAIN, "net.toml", "--init", "named.safetensors"]


def a_stranger_s_results(text: str) -> Iterator[list[str]]:
    """Text in results, with the seal that belongs to them."""
    from emuchain.emulator.run import read_results, write_results

    results = read_results(pathlib.Path("run.h5"))
    named = {key: text for key, value in results.config.items() if isinstance(value, str)}
    [*layers], name = results.weights, file_named(text)
    for changed in (
        {"config": {**results.config, **named}},
        {"descriptions": dict.fromkeys(results.descriptions, text)},
        {"versions": {**dict.fromkeys(results.versions, text), name: text}},
        {"weights": {name: results.weights[layers[0]], **results.weights}},
    ):
        try:
            write_results(pathlib.Path("new.h5"), dataclasses.replace(results, **changed))
        except (UnicodeEncodeError, ValueError):
            continue  # no such file can be written
        yield from _of_results("new.h5")


def other_texts(text: str) -> Iterator[list[str]]:
    """Cells of CSV, words of schedules, lines of profiles and of texts."""
    cell = text.replace("\udcff", "?")
    pathlib.Path("given.rows").write_text(f"network,{cell},devices\n{cell},1,2\n", encoding="utf-8")
    yield ["sweep", "net.toml", "--devices", "1-2", "--csv", "given.rows"]
    for said in (f"0F0,{cell}\n", f"{cell}\n", f"device 0: {cell}\n"):
        pathlib.Path("named.txt").write_text(said, encoding="utf-8")
        yield from (
            ["schedule", "--check", "named.txt"],
            ["explore", "--cluster", "vc709", "--profile", "named.txt"],
        )
    pathlib.Path("named.txt").write_text((cell + " to be or not to be\n") * 50, encoding="utf-8")
    yield from (
        ["data", "info", "--data", "named.txt"],
        ["train", "char-lstm", "--data", "named.txt", "--samples", "9"],
    )


PLACES: tuple[Callable[[str], Iterator[list[str]]], ...] = (
    *(a_network, a_layer, a_cluster, settings, classes, models, a_stranger_s_results, other_texts),
)
