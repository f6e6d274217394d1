"""Checkpoints of small runs, damaged in their members and in their text, with checksums that are
right again.
"""

from __future__ import annotations

import functools
import io
import json
import pathlib
import random
import tempfile
import zipfile
from collections.abc import Callable
from typing import Any

TINY = {
    "name": "tiny",
    "input": [3, 32, 32],
    "layers": [
        {"type": "conv", "channels": 4, "kernel": 4, "stride": 8},
        {"type": "batch-norm"},
        {"type": "relu"},
        {"type": "fc", "features": 10},
        {"type": "softmax"},
    ],
}
SETTINGS = {
    "samples": 16,
    "test_samples": 4,
    "batch": 4,
    "devices": 2,
    "epochs": 2,
    "checkpoint_every": 1,
}
VARIANTS: list[dict[str, Any]] = [
    {"schedule": "sync"},
    {"schedule": "1f1b-so", "engines": "turns"},
    {"schedule": "fpdeep", "replicas": 2, "compress": "inceptionn:-10"},
]
_TEXT = "checkpoint.json"
_drawn: dict[str, Any] = {}  # the images by settings: to draw them takes most of the time
_ODD = [
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63,
    2**64,
    10**30,
    0.5,
    float("nan"),
    float("inf"),
    -1e300,
    "",
    "x",
    "1",
    "\x1b[2J",
]
_ODD += [
    "\ud800",
    "a\nb",
    "../../x",
    [],
    {},
    [[]],
    [1, 2, 3],
    {"a": 1},
    [None] * 3,
    "9" * 5000,
    "none",
    "[" * 3000,
]
_SHAPES = [
    "(2**62,)",
    "(99999999999,)",
    "(-1,)",
    "(3, -3)",
    "()",
    "(0,)",
    "(4,)",
    "(1, 2, 3)",
    "(2.5,)",
    "('a',)",
]
_SHAPES += [
    "(4294967296, 4294967296)",
    "(18446744073709551617,)",
    "(True,)",
    "[4]",
    "None",
    "(" * 200,
    "1," * 300,
]
_KINDS = [
    "'<f4'",
    "'>f4'",
    "'<f8'",
    "'<i8'",
    "'|O'",
    "'|V8'",
    "'<U9'",
    "'x'",
    "3",
    "None",
    "[('a', '<f4')]",
    "'<M8[s]'",
]


class _Stopped(Exception):
    """What ends a run within an epoch."""


@functools.cache
def examples() -> list[bytes]:
    """Return checkpoints within an epoch, and after the last one."""
    from emuchain import train

    contents = []
    for variant in VARIANTS:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "run.ckpt")
            settings = {**SETTINGS, **variant, "checkpoint": str(path)}

            def stop(*_: object) -> None:
                raise _Stopped

            try:
                train(TINY, on_epoch=stop, **settings)
            except _Stopped:
                contents.append(path.read_bytes())
            train(TINY, **settings)
            contents.append(path.read_bytes())
            resume(path)  # so that processes that are forked have loaded all kernels
    return contents


def resume(path: pathlib.Path) -> list[bytes]:
    """Go on from a checkpoint as `train --resume` does, for one epoch at most; no file is written.

    Return the weights, and what the history has but for the host's time.
    """
    from emuchain.emulator.config import load_config
    from emuchain.emulator.plan import make_plan, training_data
    from emuchain.emulator.run import checkpoints_of, resumed, train
    from emuchain.launch import SingleProcess

    start = resumed(load_config(None, {"resume": str(path), "epochs": 1, "test_samples": 4}))
    assert start is not None
    config = start.config.model_copy(update={"out": None, "checkpoint": None, "log": None})
    plan = make_plan(config, 1, network=start.network, cluster=start.cluster)
    identity = repr(
        plan.config.model_dump(
            exclude={"seed", "resume", *(key for settings in VARIANTS for key in settings)}
        )
    )
    data, ranks = _drawn.get(identity) or training_data(plan), SingleProcess()
    _drawn.setdefault(identity, data)
    weights: list[dict[str, Any]] = []
    history = train(
        *(plan, data, ranks, lambda _: None, lambda _, last: weights.append(last)),
        gather_weights=True,
        checkpoints=checkpoints_of(plan, data, ranks, start, start.series),
    )
    learnt = [array.tobytes() for arrays in weights[-1].values() for array in arrays.values()]
    rows = [
        (epoch.train, epoch.test, epoch.virtual_time_ps, epoch.exchanged.traffic)
        for epoch in history
    ]
    return [*learnt, repr(rows).encode()]


def damaged(
    example: bytes, chance: random.Random, bytes_changed: Callable[[bytes, random.Random], bytes]
) -> bytes:
    """Return a checkpoint with changed bytes, or with changed members whose checksums are right."""
    if not chance.randrange(5):
        return bytes_changed(example, chance)
    with zipfile.ZipFile(io.BytesIO(example)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        name, other = (chance.choice([*members]) for _ in range(2))
        kind = chance.randrange(8)
        if kind == 0:
            del members[name]
            members.setdefault(_TEXT, b"{}")
        elif kind == 1:
            members[name], members[other] = members[other], members[name]
        elif kind == 2:
            members[name] = bytes_changed(members[name], chance)
        elif kind == 3 and name != _TEXT:
            members[name] = _other_header(members[name], chance)
        elif _TEXT in members:
            members[_TEXT] = _other_text(members[_TEXT], chance)
    file = io.BytesIO()
    with zipfile.ZipFile(
        file, "w", zipfile.ZIP_STORED if chance.randrange(20) else zipfile.ZIP_DEFLATED
    ) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def _other_header(array: bytes, chance: random.Random) -> bytes:
    """Return an array's bytes after a header that says another type or shape, at times of another
    version.
    """
    size = 10 + int.from_bytes(array[8:10], "little")
    header = array[10:size].decode("latin-1")
    kind, shape = header.partition("'shape':")[0], chance.choice(_SHAPES)
    if chance.randrange(2):
        kind, shape = (
            (
                f"{{'descr': {chance.choice(_KINDS)}, 'fortran_order':"
                f" {chance.choice(['False', 'True'])}, "
            ),
            "(4,)",
        )
    said = f"{kind}'shape': {shape}, }}\n".encode()
    wide = not chance.randrange(8)
    begin = (
        b"\x93NUMPY"
        + (b"\2\0" if wide else b"\1\0")
        + len(said).to_bytes(4 if wide else 2, "little")
    )
    return begin + said + array[size:]


def _other_text(text: bytes, chance: random.Random) -> bytes:
    """Return the JSON text with one value changed, removed or exchanged for another one."""
    try:
        root = json.loads(text)
    except (ValueError, RecursionError):
        return text
    places, at = [], root
    while isinstance(at, dict | list) and at and (len(places) < 1 or chance.randrange(8)):
        key = chance.choice([*at]) if isinstance(at, dict) else chance.randrange(len(at))
        places.append((at, key))
        at = at[key]
    if not places:
        return text
    holder, key = places[-1]
    kind = chance.randrange(5)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(at, int | float):
        holder[key] = at * chance.choice([-1, 2, 0, 10**6, 2**70, 0.5]) + chance.choice([0, 1, -1])
    elif kind == 2:
        holder[key] = chance.choice(
            chance.choice([[*holder.values()] if isinstance(holder, dict) else holder, _ODD])
        )
    else:
        holder[key] = chance.choice(_ODD)
    return json.dumps(root).encode()
