"""The commands and functions of emuchain with the settings by which they name files, and valid
inputs of each kind.
"""

from __future__ import annotations

import contextlib
import io
import pathlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import click
from limits import limited

from emuchain.emulator.commands.cli import main as emuchain_main
from emuchain.emulator.commands.command_line import commands
from emuchain.emulator.commands.frame import named
from emuchain.emulator.commands.frame.command import setting_of
from emuchain.emulator.commands.frame.flags import ConfiguredCommand
from emuchain.emulator.common import NO_FILE, InputError, Reads, Role, Writes
from emuchain.emulator.config import Config, role_of, roles

NETWORK = """name = "small"
input = [3, 16, 16]
layers = [
  { type = "conv", channels = 4, kernel = 3, stride = 2 }, { type = "relu" },
  { type = "fc", features = 4 }, { type = "softmax" },
]
"""
TEXTS = {
    "net.toml": NETWORK,
    "board.toml": 'name = "ours"\nclock_mhz = 200\ndsp = 900\non_chip_memory_kbit = 16000\n',
    "cluster.toml": (
        'name = "mine"\n[[boards]]\ntype = "board.toml"\n[links]\nbandwidth_gbps = 10\nlatency_ns ='
        " 100\n"
    ),
    "faults.toml": "[[faults.boards]]\nboard = 0\nfactor = 2.5\n",
    "config.toml": 'network = "net.toml"\ndata = "d.h5"\nbatch = 20\nprogress = "none"\n',
    "hosts": "localhost:2\n",
    "text.txt": "to be, or not to be\n" * 200,
}


class Input(NamedTuple):
    """The value of a setting that reads, and the file that is not to be touched."""

    value: str
    file: str


_NETWORKS = [
    Input("net.toml", "net.toml"),
    Input("net.onnx", "net.onnx"),
    Input("net.onnx", "net.weights"),
]
_CLUSTERS = [Input("cluster.toml", "cluster.toml"), Input("cluster.toml", "board.toml")]
INPUTS: dict[Role, list[Input]] = {
    roles.NETWORK: _NETWORKS,
    roles.NETWORKS: [Input(f"quick-cifar,{value}", file) for value, file in _NETWORKS],
    roles.CLUSTER: _CLUSTERS,
    roles.DATA: [
        *(Input(name, name) for name in ("d.h5", "d.npz", "text.txt")),
        Input("pictures", "pictures/train/b/1.png"),
        Input("cifar", "cifar/cifar-10-batches-bin/test_batch.bin"),
        Input("mnist", "mnist/train-labels-idx1-ubyte"),
    ],
    roles.FAULTS: [Input("faults.toml", "faults.toml")],
    roles.WEIGHTS: [
        *(Input(name, name) for name in ("w.safetensors", "run.h5", "run.ckpt")),
        Input("net.onnx", "net.weights"),
    ],
    named.HOSTS.role: [Input("hosts", "hosts")],
    roles.CHECKPOINT: [Input("run.ckpt", "run.ckpt"), Input("run.ckpt", "d.h5")],
    roles.CONFIGURATION: [
        Input("config.toml", name) for name in ("config.toml", "net.toml", "d.h5")
    ],
    roles.RUN: [Input(name, name) for name in ("run.h5", "run.ckpt")],
    named.RUNS.role: [Input("runs", "runs/run.h5")],
    named.WHAT_IF.role: [
        *(Input(f"cluster={v}", f) for v, f in _CLUSTERS),
        Input("network=net.toml", "net.toml"),
    ],
}
"""What is named by settings of each role, and the files behind it. The checkpoint's run had d.h5.
"""

NEEDED = {
    "schedule": "gpipe",
    "stages": "2",
    "micro_batches": "2",
    "forward": "1",
    "backward": "1",
    "paper": "fpdeep",
}
FILLED = {
    roles.NETWORK: "net.toml",
    roles.NETWORKS: "net.toml",
    roles.RUN: "run.h5",
    named.RTL.role: "rtl",
}
"""Values of settings that a command cannot do without, by name or role."""


def make_inputs(folder: pathlib.Path) -> None:
    """Write a file of each kind into a folder, which is the current one."""
    import h5py
    import numpy as np
    import onnx
    from PIL import Image

    import emuchain

    chance = np.random.default_rng(1)
    images, labels = chance.integers(0, 255, (40, 3, 16, 16), np.uint8), np.arange(40) % 4
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    with h5py.File(folder / "d.h5", "w") as file:
        file["images"], file["labels"] = images, labels
    np.savez(folder / "d.npz", images=images.transpose(0, 2, 3, 1), labels=labels)
    for part in ("train/a", "train/b", "val/a", "val/b"):
        (folder / "pictures" / part).mkdir(parents=True)
        for number in range(2):
            Image.fromarray(images[number].transpose(1, 2, 0)).save(
                folder / "pictures" / part / f"{number}.png"
            )
    cifar, mnist = folder / "cifar" / "cifar-10-batches-bin", folder / "mnist"
    cifar.mkdir(parents=True)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        (cifar / f"{name}.bin").write_bytes(
            b"".join(bytes([label]) + bytes(3072) for label in range(10))
        )
    mnist.mkdir()
    for part in ("train", "t10k"):
        for kind, shape in (("images-idx3", (10, 28, 28)), ("labels-idx1", (10,))):
            head = b"".join(number.to_bytes(4, "big") for number in (0x800 + len(shape), *shape))
            (mnist / f"{part}-{kind}-ubyte").write_bytes(head + bytes(np.prod(shape, dtype=int)))
    emuchain.train("net.toml", data="d.h5", batch=20, out="run.h5", checkpoint="run.ckpt")
    (folder / "runs").mkdir()
    shutil.copy("run.h5", "runs")
    emuchain.export("run.h5", "w.safetensors")
    emuchain.export("run.h5", "net.onnx")
    onnx.save(
        onnx.load("net.onnx"),
        "net.onnx",
        save_as_external_data=True,
        location="net.weights",
        size_threshold=0,
    )


class Setting(NamedTuple):
    """A setting with its role, and how a value of it is given; names of files become those of a
    `variant` of runs.
    """

    name: str
    role: Role
    given: Callable[[str], Mapping[str, str]]
    variant: str = ""


class Surface(NamedTuple):
    """A command or a function: its settings, and what calls it with values and returns its line,
    None without one.
    """

    name: str
    settings: list[Setting]
    call: Callable[[Mapping[str, str]], str | None]

    def of(self, kind: type[Role]) -> list[Setting]:
        """Return the settings that read, or those that write."""
        return [setting for setting in self.settings if isinstance(setting.role, kind)]


def all_commands() -> Iterator[Surface]:
    """Yield all commands that write a file by a setting."""
    for names, command in leaves(commands, ()):
        context = click.Context(command)
        params = {param.name or "": param for param in command.get_params(context)}
        settings = [
            Setting(setting_of(param), role_in(param), _as(name)) for name, param in params.items()
        ]
        if isinstance(command, ConfiguredCommand):
            settings.append(Setting("CONFIG.toml", roles.CONFIGURATION, _as("subject")))
        yield Surface(
            " ".join(names),
            [setting for setting in settings if setting.role != NO_FILE],
            _command(names, params),
        )
    yield from _started()


_LAUNCH = ("launch", "-n", "1", "--hosts")
_FILES = ("out", "checkpoint", "log")
_VARIANTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "": ("", ()),
    "--seeds 2": ("seed1", _FILES),
    "--control --compress bf16": ("control", ("checkpoint",)),
}
"""Flags of `train`, the variant of a run whose names they expand, and whose names those are."""


def _started() -> Iterator[Surface]:
    """Yield `train` as `launch` starts it, and both with flags that expand names."""
    command = commands.commands["train"]
    params = {param.name or "": param for param in command.get_params(click.Context(command))}
    hosts = Setting("hosts", named.HOSTS.role, _as("hosts"))
    for flags, (variant, expanded) in _VARIANTS.items():
        settings = [
            Setting(
                setting_of(param), role_in(param), _as(name), variant if name in expanded else ""
            )
            for name, param in params.items()
            if role_in(param) not in (NO_FILE, roles.CHECKPOINT)
        ]
        if flags:
            own = [
                setting
                for setting in settings
                if setting.variant or isinstance(setting.role, Reads)
            ]
            yield Surface(f"train {flags}", own, _command(("train", *flags.split()), params))
        writes = [setting for setting in settings if isinstance(setting.role, Writes)]
        if "--seeds" in flags:
            writes = [setting for setting in writes if setting.variant]  # a trace is for one run
        yield Surface(
            f"launch -- train {flags}".strip(), [hosts, *writes], _launched(flags.split(), params)
        )


def _launched(
    flags: Sequence[str], params: Mapping[str, click.Parameter]
) -> Callable[[Mapping[str, str]], str | None]:
    def call(values: Mapping[str, str]) -> str | None:
        words = words_of(("train", *flags), params, values)
        status, said = run_command([*_LAUNCH, values.get("hosts", "hosts"), "--", *words])
        return said if status == 2 else None

    return call


def leaves(
    group: click.Group, names: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield all commands below a group, with their names."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, (*names, name))
        else:
            yield (*names, name), command


def role_in(param: click.Parameter) -> Role:
    """Return the role of an argument or flag."""
    return getattr(param.type, "role", NO_FILE)


def _as(name: str) -> Callable[[str], Mapping[str, str]]:
    return lambda value: {name: value}


def _command(
    names: tuple[str, ...], params: Mapping[str, click.Parameter]
) -> Callable[[Mapping[str, str]], str | None]:
    """Return a function that runs a command with values of its parameters."""

    def call(values: Mapping[str, str]) -> str | None:
        status, said = run_command(words_of(names, params, values))
        return said if status == 2 else None

    return call


def words_of(
    names: tuple[str, ...], params: Mapping[str, click.Parameter], values: Mapping[str, str]
) -> list[str]:
    """Return the words of a command with values of its parameters, and of those that it needs."""
    words = list(names)
    for name, param in params.items():
        value = values.get(name, _needed(name, param, values))
        if value is not None:
            words += [value] if isinstance(param, click.Argument) else [param.opts[-1], value]
    return words


def run_command(words: list[str]) -> tuple[object, str]:
    """Run a command in this process; return its exit status and what it printed."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            with limited():
                emuchain_main(words)
        except SystemExit as ended:
            return ended.code, said.getvalue()


def _needed(name: str, param: click.Parameter, values: Mapping[str, str]) -> str | None:
    """Return the value of a setting that a command needs, or that a pair of outputs has nothing
    else to work on.
    """
    if not param.required and not (name == "name" and "out" in values):
        return None
    return NEEDED.get(name) or FILLED.get(role_in(param), "out.png")


def all_functions() -> Iterator[Surface]:
    """Yield the functions of `import emuchain` that write a file by an argument."""
    import emuchain

    keys = {key: role_of(key) for key in Config.model_fields if role_of(key) != NO_FILE}
    planning = {key: keys[key] for key in ("network", "cluster", "data", "faults")}
    swept = {"network": roles.NETWORK, "cluster": roles.CLUSTER, "faults": roles.FAULTS}
    arguments: dict[Callable[..., Any], dict[str, Role]] = {
        emuchain.train: {**keys, "trace": roles.OUTPUT},
        emuchain.simulate: {**planning, "trace": roles.OUTPUT},
        emuchain.sweep: {**swept, "csv": roles.OUTPUT},
        emuchain.export: {"run": roles.RUN, "out": roles.OUTPUT},
    }
    for function, named_roles in arguments.items():
        settings = [Setting(name, role, _as(name)) for name, role in named_roles.items()]
        yield Surface(f"emuchain.{function.__name__}", settings, _function(function))


def _function(function: Callable[..., Any]) -> Callable[[Mapping[str, str]], str | None]:
    def call(values: Mapping[str, str]) -> str | None:
        needed = {"run": "run.h5"} if function.__name__ == "export" else {"network": "net.toml"}
        needed = {} if "resume" in values else needed
        try:
            function(**{**needed, **values})
        except InputError as error:
            return f"emuchain: error: {error}\n"
        return None

    return call
