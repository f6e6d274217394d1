"""Results files of small runs, well-formed HDF5 that is not what emuchain writes, and the commands
that take them.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import pathlib
import random
import tempfile
from collections.abc import Callable
from typing import Any

import checkpoints
import click
import h5py
import numpy as np

from emuchain.emulator.commands import finished
from emuchain.emulator.commands.frame.command import Answer

RUNS: list[dict[str, Any]] = [
    {"network": checkpoints.TINY, "schedule": "sync", "devices": 2},
    {
        "network": checkpoints.TINY,
        "schedule": "fpdeep",
        "replicas": 2,
        "devices": 2,
        "compress": "inceptionn:-10",
    },
    {"network": "lstm-rows", "schedule": "farnn", "cluster": "farnn-9p"},
]
_SETTINGS = {"samples": 16, "test_samples": 4, "batch": 4, "epochs": 2}
_VALUES = [
    0,
    -1,
    1,
    2,
    7,
    255,
    2**31,
    2**53,
    2**62,
    2**63 - 1,
    -(2**63),
    0.5,
    -0.0,
    1e-320,
    1e300,
    np.inf,
    -np.inf,
    np.nan,
]
_WORDS = [
    "",
    "x",
    "none",
    "1",
    "sync",
    "nan",
    "-1",
    "é",
    "\x1b[2J",
    "a\nb",
    "../../etc/passwd",
    "[" * 3000,
    "9" * 5000,
]
_WORDS += [
    "quick-cifar",
    "vc709",
    "shapes",
    "text",
    "/dev/zero",
    "inceptionn:-10",
    "fpdeep",
    "farnn",
    "data-parallel-ring",
]
_TYPES = [
    *(
        "i1",
        "i2",
        "i4",
        "i8",
        ">i8",
        "u1",
        "u4",
        "u8",
        "f2",
        "f4",
        ">f4",
        "f8",
        "c8",
        "?",
        "S3",
        "V4",
    ),
    *(
        h5py.string_dtype(),
        h5py.vlen_dtype("i4"),
        h5py.ref_dtype,
        h5py.regionref_dtype,
        h5py.enum_dtype({"a": 1}),
    ),
    *(
        np.dtype([("a", "i4"), ("b", "f8")]),
        np.dtype("(3,)f4"),
        h5py.opaque_dtype(np.dtype("M8[s]")),
    ),
]
_SHAPES = [
    (),
    (0,),
    (1,),
    (2,),
    (3, 2),
    (0, 3),
    (1, 1, 1, 1, 1),
    (10**6,),
    (2**40,),
    (2**31, 2**31),
    (4, 4, 4),
]
_NAMES = [
    "x",
    "weight",
    "epoch",
    "network",
    "format",
    "a" * 1000,
    "\x1b[2J",
    "a.b",
    "é",
    " ",
    "made_bytes",
    "digest",
]


@functools.cache
def examples() -> list[bytes]:
    """Return the results files of some runs."""
    from emuchain import train

    contents = []
    for run in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "run.h5")
            train(**{**_SETTINGS, **run}, out=str(path))
            contents.append(path.read_bytes())
    return contents


def damaged(
    example: bytes, chance: random.Random, bytes_changed: Callable[[bytes, random.Random], bytes]
) -> bytes:
    """Return a results file with changed bytes, or one of another structure, which no digest
    covers.
    """
    if not chance.randrange(8):
        return bytes_changed(example, chance)
    image = io.BytesIO(example)
    with h5py.File(image, "r+") as file, np.errstate(all="ignore"):
        file.attrs["format"] = np.int64(1)
        file.attrs.pop("digest", None)
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            try:
                chance.choice(_CHANGES)(file, chance)
            except Exception:  # of what HDF5 cannot hold, whatever is left of it
                continue
    return image.getvalue()


def _any(file: Any, chance: random.Random, *, groups: bool = False) -> Any:
    """Return a data set, or a group, too."""
    items: list[Any] = []
    file.visititems(
        lambda _, item: items.append(item) if groups or hasattr(item, "shape") else None
    )
    return chance.choice(items)


def _replace(old: Any, **new: Any) -> None:
    """Put another data set in the place of one."""
    file, name = old.file, old.name
    del file[name]
    file.create_dataset(name, **new)


def _other_values(file: Any, chance: random.Random) -> None:
    data = _any(file, chance)
    values = np.array(data[()])
    if values.dtype.kind == "S":
        values = np.array([chance.choice(_WORDS).encode() for _ in range(values.size)]).reshape(
            values.shape
        )
    elif values.size:
        flat = values.reshape(-1).copy()
        value = np.array(chance.choice(_VALUES)).astype(values.dtype)
        places = slice(None) if chance.randrange(2) else chance.randrange(flat.size)
        flat[places] = value if chance.randrange(4) else -flat[places]
        values = flat.reshape(values.shape)
    _replace(data, data=values)


def _other_type(file: Any, chance: random.Random) -> None:
    data, kind = _any(file, chance), chance.choice(_TYPES)
    try:
        _replace(data, data=np.array(data[()]).astype(kind))
    except (TypeError, ValueError):
        if data:
            _replace(data, shape=data.shape, dtype=kind)


def _other_shape(file: Any, chance: random.Random) -> None:
    data = _any(file, chance)
    values = np.array(data[()])
    kind = chance.randrange(6)
    if kind == 0 and values.ndim:
        _replace(data, data=values[: chance.randrange(len(values) + 1)])
    elif kind == 1 and values.ndim:
        _replace(data, data=np.concatenate([values] * chance.randint(2, 5)))
    elif kind == 2:
        _replace(
            data,
            data=values.reshape(
                chance.choice([(-1,), (1, -1), (-1, 1), (1, 1, -1), values.shape[::-1]])
            ),
        )
    elif kind == 3 and values.ndim:
        _replace(data, data=values[::-1] if chance.randrange(2) else np.roll(values, 1, axis=0))
    else:
        shape = chance.choice(_SHAPES)
        chunks = (
            tuple(min(64, size) or 1 for size in shape) if chance.randrange(2) and shape else None
        )
        packed = {"compression": "gzip"} if chunks else {}
        _replace(
            data,
            shape=shape,
            dtype=values.dtype,
            chunks=chunks,
            maxshape=(None,) * len(shape) if chunks else None,
            **packed,
        )


def _removed(file: Any, chance: random.Random) -> None:
    item = _any(file, chance, groups=not chance.randrange(3))
    del file[item.name]


def _exchanged(file: Any, chance: random.Random) -> None:
    one, other = _any(file, chance).name, _any(file, chance).name
    if one != other:
        file.move(one, "aside")
        file.move(other, one)
        file.move("aside", other)


def _renamed(file: Any, chance: random.Random) -> None:
    item = _any(file, chance, groups=not chance.randrange(3))
    file.move(item.name, f"{item.parent.name}/{chance.choice(_NAMES)}")


def _linked(file: Any, chance: random.Random) -> None:
    item = _any(file, chance, groups=not chance.randrange(2))
    name, parent = item.name, item.parent.name
    if chance.randrange(2):
        del file[name]
    else:
        name = f"{parent}/{chance.choice(_NAMES)}"
    kinds: list[Callable[[], Any]] = [
        lambda: h5py.SoftLink("/nowhere"), lambda: h5py.SoftLink(name), lambda: h5py.SoftLink(parent),
        lambda: h5py.ExternalLink("/etc/passwd", "/"), lambda: h5py.ExternalLink("input.h5", parent),
        lambda: file[parent], lambda: file, lambda: np.dtype("f4"),
    ]  # fmt: skip
    file[name] = chance.choice(kinds)()


def _other_kind(file: Any, chance: random.Random) -> None:
    item = _any(file, chance, groups=True)
    name, is_group = item.name, not hasattr(item, "shape")
    del file[name]
    if is_group:
        file[name] = np.arange(3)
    else:
        file.create_group(name + "/deeper" * chance.choice((0, 1, 300)))


def _added(file: Any, chance: random.Random) -> None:
    item = _any(file, chance, groups=True)
    parent = item.parent if hasattr(item, "shape") else item
    name = chance.choice(_NAMES)
    kind = chance.randrange(4)
    if kind == 0:
        parent.create_dataset(name, shape=chance.choice(_SHAPES[:7]), dtype=chance.choice(_TYPES))
    elif kind == 1:
        parent.create_dataset(name, (2,), "f4", external=[("/etc/passwd", 0, 8)])
    elif kind == 2:
        layout = h5py.VirtualLayout((2,), "f4")
        layout[:] = h5py.VirtualSource("/etc/passwd", "data", shape=(2,))
        parent.create_virtual_dataset(name, layout)
    else:
        parent.create_dataset(name, data=chance.choice(_VALUES))


def _other_setting(file: Any, chance: random.Random) -> None:
    holder = (
        file[chance.choice(("config", "config", "config", "versions"))]
        if chance.randrange(12)
        else file
    )
    name = chance.choice([*holder.attrs])
    kind = chance.randrange(8)
    if kind == 0:
        del holder.attrs[name]
    elif kind == 1:
        holder.attrs[name] = chance.choice(_WORDS)
    elif kind == 2:
        holder.attrs[name] = np.array([chance.choice(_VALUES[:8])] * chance.randrange(4))
    elif kind == 3:
        holder.attrs.create(name, h5py.Empty("f4"))
    elif kind == 4:
        holder.attrs.create(
            name, file.ref if chance.randrange(2) else np.array(["a", "b"], h5py.string_dtype())
        )
    elif kind == 5:
        other = chance.choice([*holder.attrs])
        holder.attrs[name], holder.attrs[other] = holder.attrs[other], holder.attrs[name]
    else:
        holder.attrs[name] = chance.choice(_VALUES)


def _other_description(file: Any, chance: random.Random) -> None:
    data = file[f"descriptions/{chance.choice([*file['descriptions']])}"]
    text = data[()].decode()
    kind = chance.randrange(4)
    if kind == 0:
        text = chance.choice(
            [*_WORDS, "{}", "[]", '{"name": ' * 500, '{"layers": 3}', "layers = 3\n", "\0"]
        )
    elif kind == 1:
        at = chance.randrange(len(text) + 1)
        text = (
            text[:at]
            + chance.choice([*_WORDS, "0", "9", "-", "1e30"])
            + text[at + chance.randrange(4) :]
        )
    elif kind == 2:
        text = text[: chance.randrange(len(text) + 1)]
    else:
        text = "".join(
            (
                chance.choice("0123456789")
                if character.isdigit() and not chance.randrange(9)
                else character
            )
            for character in text
        )
    _replace(data, data=np.bytes_(text.encode()))


_CHANGES = [
    _other_values,
    _other_values,
    _other_type,
    _other_shape,
    _other_setting,
    _other_setting,
    _other_description,
]
_CHANGES += [_removed, _exchanged, _renamed, _linked, _other_kind, _added]


def printed(command: click.Command, *arguments: Any) -> str:
    """Return what a command prints, whose function gets these arguments."""
    assert command.callback is not None
    with contextlib.redirect_stdout(io.StringIO()) as said:
        result = command.callback(*arguments)
        if isinstance(result, Answer):
            result.show()
            if result.as_json is not None:
                print(json.dumps(result.as_json()))
    return said.getvalue()


def show(path: pathlib.Path) -> str:
    """Return what `emuchain show` prints."""
    return printed(finished.show, str(path), False, True)


def report(path: pathlib.Path) -> bytes:
    """Return the page that `emuchain report` writes."""
    page = path.with_suffix(".html")
    printed(finished.report, [str(path)], str(page), None, None)
    return page.read_bytes()


def retime(path: pathlib.Path) -> str:
    """Return what `emuchain retime` prints, under a cluster with slower links."""
    return printed(finished.retime, str(path), None, ("link.bandwidth_gbps=10",))


def export(path: pathlib.Path) -> bytes:
    """Return the file that `emuchain export` writes."""
    out = path.with_suffix(".onnx")
    printed(finished.export, str(path), str(out))
    return out.read_bytes()


def evaluate(path: pathlib.Path) -> str:
    """Return what `emuchain evaluate` prints."""
    return printed(finished.evaluate, str(path), None, None)


def init(path: pathlib.Path) -> list[bytes]:
    """Return the weights with which `emuchain train --init` begins."""
    from emuchain.emulator.network import load_network
    from emuchain.emulator.run import read_weights

    weights = read_weights(str(path), load_network(checkpoints.TINY), "`init`")
    return [array.tobytes() for arrays in weights.values() for array in arrays.values()]


OF_ANY_RUN, OF_CHAINS, OF_WEIGHTS = (show, report), (retime,), (export, evaluate, init)
"""Commands that take results of any run, those of chains alone, and those of chains and their
checkpoints.
"""
