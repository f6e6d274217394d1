"""The configuration: file and flags, and that each key is a flag."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import click.testing
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.commands import train as train_command
from emuchain.emulator.commands.cli import main
from emuchain.emulator.commands.command_line import commands
from emuchain.emulator.commands.frame.session import Session
from emuchain.emulator.common import InputError
from emuchain.emulator.config import (
    RUN_ONLY_KEYS,
    Config,
    RunKeys,
    TrainKeys,
    learning_rate,
    load_config,
)
from emuchain.emulator.run import Runs

# A value other than the default for each key, as a flag, as TOML, and as Python has it.
OTHERS: dict[str, tuple[str, str, Any]] = {
    "network": ("vgg11", '"vgg11"', "vgg11"),
    "time_steps": ("9", "9", 9),
    "text_samples": ("lines", '"lines"', "lines"),
    "tokenizer": ("some/tokenizer.json", '"some/tokenizer.json"', "some/tokenizer.json"),
    "masked_share": ("0.15", "0.15", 0.15),
    "data": ("some/folder", '"some/folder"', "some/folder"),
    "resize": ("256", "256", (256,)),
    "crop": ("224,192", "[224, 192]", (224, 192)),
    "channels": ("last", '"last"', "last"),
    "mean": ("0.5,0.25,0", "[0.5, 0.25, 0]", (0.5, 0.25, 0.0)),
    "std": ("0.25", "0.25", (0.25,)),
    "augment": ("crop,flip", '["crop", "flip"]', ("crop", "flip")),
    "skip_broken": ("", "true", True),
    "test_share": ("0.5", "0.5", 0.5),
    "split_seed": ("3", "3", 3),
    "test_samples": ("7", "7", 7),
    "samples": ("5", "5", 5),
    "input": ("3x4x4", '"3x4x4"', "3x4x4"),
    "epochs": ("3", "3", 3),
    "batch": ("7", "7", 7),
    "micro_batch": ("2", "2", 2),
    "devices": ("4", "4", 4),
    "schedule": ("sync", '"sync"', "sync"),
    "warm_up": ("N-i+2", '"N-i+2"', "N-i+2"),
    "chunks": ("3", "3", 3),
    "recompute": ("conv1,fc1", '"conv1,fc1"', "conv1,fc1"),
    "stages": ("layers", '"layers"', "layers"),
    "cut": ("a | b[3:] c", '["a", "b[3:] c"]', "a | b[3:] c"),
    "engines": ("turns", '"turns"', "turns"),
    "transport": ("stored", '"stored"', "stored"),
    "precision": ("fp16", '"fp16"', "fp16"),
    "replicas": ("2", "2", 2),
    "exchange": ("aggregator", '"aggregator"', "aggregator"),
    "groups": ("2", "2", 2),
    "zero": ("1", "1", 1),
    "compress": ("inceptionn:-10", '"inceptionn:-10"', "inceptionn:-10"),
    "error_feedback": ("", "true", True),
    "compress_weights": ("truncate:16", '"truncate:16"', "truncate:16"),
    "compress_ratio": ("12.5", "12.5", 12.5),
    "cluster": ("vc709-10g", '"vc709-10g"', "vc709-10g"),
    "changes": ("link.latency_ns=5", '{"link.latency_ns" = 5}', {"link.latency_ns": 5}),
    "balancing": ("none", '"none"', "none"),
    "memory": ("ignored", '"ignored"', "ignored"),
    "rows_at_once": ("16", "16", 16),
    "padding": ("1.3", "1.3", 1.3),
    "seed": ("0", "0", 0),
    "optimizer": ("adam", '"adam"', "adam"),
    "learning_rate": ("1", "1", 1.0),
    "momentum": ("0", "0", 0.0),
    "beta1": ("0.8", "0.8", 0.8),
    "beta2": ("0.99", "0.99", 0.99),
    "epsilon": ("1e-6", "1e-6", 1e-6),
    "weight_decay": ("1e-3", "1e-3", 1e-3),
    "patience": ("3", "3", 3),
    "clip_norm": ("1", "1", 1.0),
    "lr_schedule": (
        "steps:at=10,20,factor=0.5",
        '"steps:at=10,20,factor=0.5"',
        "steps:at=10,20,factor=0.5",
    ),
    "lr_warm_up": ("20", "20", 20),
    "label_smoothing": ("0.1", "0.1", 0.1),
    "target_columns": ("price,rent", '["price", "rent"]', ("price", "rent")),
    "loss": ("mse", '"mse"', "mse"),
    "class_weights": ("1,0.5", "[1, 0.5]", (1.0, 0.5)),
    "rtl_device": ("2", "2", 2),
    "throttle": ("wall", '"wall"', "wall"),
    "stall_timeout": ("0", "0", 0.0),
    "out": ("run.h5", '"run.h5"', "run.h5"),
    "init": ("run.h5", '"run.h5"', "run.h5"),
    "new_layers": ("fc1,fc2", '["fc1", "fc2"]', ("fc1", "fc2")),
    "freeze": ("conv1:conv3", '"conv1:conv3"', ("conv1:conv3",)),
    "lora": ("r=8,on=qkv*", '"r=8,on=qkv*"', "r=8,on=qkv*"),
    "checkpoint": ("run.ckpt", '"run.ckpt"', "run.ckpt"),
    "checkpoint_every": ("500", "500", 500),
    "resume": ("run.ckpt", '"run.ckpt"', "run.ckpt"),
    "faults": ("hurt.toml", '"hurt.toml"', "hurt.toml"),
    "log": ("csv:some.csv", '"csv:some.csv"', "csv:some.csv"),
    "progress": ("none", '"none"', "none"),
}


def test_this_test_knows_every_key() -> None:
    assert set(OTHERS) == set(Config.model_fields)
    for key, (_, _, value) in OTHERS.items():
        assert getattr(Config(**{key: value}), key) != getattr(Config(), key)


@pytest.mark.parametrize("command", ["train", "simulate", "schedule"])
def test_every_key_has_a_flag_with_a_line_of_help(command: str) -> None:
    found = commands.commands[command]
    flags = {
        flag for parameter in found.get_params(click.Context(found)) for flag in parameter.opts
    }
    keys = {
        key: field
        for key, field in Config.model_fields.items()
        if command == "train" or key not in RUN_ONLY_KEYS
    }
    assert {"--" + key.replace("_", "-") for key in keys} <= flags
    shown = click.testing.CliRunner().invoke(commands, [command, "--help-all"], terminal_width=200)
    assert shown.exit_code == 0
    message = " ".join(shown.output.split()).replace("- ", "-")  # lines end at hyphens, too
    for key, field in keys.items():
        flag, help_text = f"--{key.replace('_', '-')} ", (field.description or "").replace("`", "")
        default = f" [default: {field.default}]" if field.default not in (None, ()) else ""
        assert 0 < message.index(f"{help_text}{default}") - message.index(flag) < 80


def flags_of(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> tuple[str | None, dict[str, Any]]:
    """What the command line makes of its arguments, before a checkpoint is read."""
    monkeypatch.setattr(Runs, "going_on", lambda runs: runs)
    seen: list[Any] = []
    monkeypatch.setattr(train_command, "run_training", lambda *given, **_: seen.append(given))
    runner = click.testing.CliRunner()
    result = runner.invoke(commands, ["train", *arguments], obj=Session(), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    [(_, _, file, flags, _, trace)] = seen
    assert set(trace.values()) == {None}
    return file, flags


@pytest.mark.parametrize("key", OTHERS)
def test_each_flag_sets_its_key_and_no_other(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    word, _, value = OTHERS[key]
    file, flags = flags_of(monkeypatch, [f"--{key.replace('_', '-')}", *([word] if word else [])])
    assert (file, flags) == (None, {key: value})
    assert load_config(None, flags) == Config(**{key: value})


def test_without_flags_nothing_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    some = tmp_path / "some.toml"
    some.write_text("batch = 32\n")
    assert flags_of(monkeypatch, []) == (None, {})
    assert flags_of(monkeypatch, [str(some)]) == (str(some), {})


@pytest.mark.parametrize("key", OTHERS)
def test_each_key_in_a_file(tmp_path: Path, key: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f"{key} = {OTHERS[key][1]}\n")
    assert load_config(str(path), {}) == Config(**{key: OTHERS[key][2]})


def test_a_flag_goes_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("".join(f"{key} = {toml}\n" for key, (_, toml, _) in OTHERS.items()))
    everything = {key: value for key, (_, _, value) in OTHERS.items()}
    assert load_config(str(path), {}) == Config(**everything)
    assert load_config(str(path), {"batch": 9, "seed": 4}) == Config(
        **{**everything, "batch": 9, "seed": 4}
    )
    assert Config(**Config(**everything).model_dump()) == Config(**everything)


def test_an_empty_file_is_the_default(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.touch()
    assert load_config(str(path), {}) == load_config(None, {}) == Config()


BAD = [
    ("batch", "true"),
    ("batch", "64.0"),
    ("batch", '"64"'),
    ("batch", "0"),
    ("batch", "-1"),
    ("batch", "[1]"),
    ("micro_batch", "0"),
    ("samples", "0"),
    ("epochs", "0"),
    ("devices", "0"),
    ("devices", "true"),
    ("seed", "-1"),
    ("seed", "9223372036854775808"),
    ("seed", "1.0"),
    ("network", "5"),
    ("network", "true"),
    ("cluster", "[]"),
    ("out", "1"),
    ("schedule", '"zigzag"'),
    ("schedule", "1"),
    ("throttle", "true"),
    ("progress", '"on"'),
    ("learning_rate", "0"),
    ("learning_rate", "nan"),
    ("learning_rate", "inf"),
    ("learning_rate", '"0.1"'),
    ("learning_rate", "true"),
    ("momentum", "1"),
    ("momentum", "-0.1"),
    ("momentum", "nan"),
    ("optimizer", '"adagrad"'),
    ("beta1", "1"),
    ("beta2", "-0.5"),
    ("epsilon", "0"),
    ("lr_schedule", '"linear"'),
    ("lr_schedule", '"step:every=0"'),
    ("lr_schedule", '"step:every=1,factor=0"'),
    ("lr_schedule", '"step:every=1,factor=1.5"'),
    ("lr_warm_up", "-1"),
    ("lr_warm_up", "0.5"),
    ("label_smoothing", "1"),
    ("loss", '"mae"'),
    ("class_weights", "[1, -1]"),
    ("log", '"tsv"'),
    ("log", "1"),
    ("weight_decay", "-1"),
    ("clip_norm", "0"),
    ("clip_norm", "inf"),
    ("weight_decay", "inf"),
    ("lr_schedule", "5"),
    ("lr_schedule", '"steps:at=0"'),
    ("lr_schedule", '"steps:at=1.0"'),
    ("lr_schedule", '"steps:at=1,factor=0"'),
    ("resize", "0"),
    ("resize", "true"),
    ("crop", "[1.5]"),
    ("mean", '"nan"'),
    ("std", "[0.5, 0]"),
    ("augment", '"zoom"'),
    ("skip_broken", "1"),
    ("test_share", "1"),
]


@pytest.mark.parametrize(("key", "toml"), BAD)
def test_wrong_values(tmp_path: Path, one_line: Callable[..., str], key: str, toml: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f"{key} = {toml}\n")
    with pytest.raises(InputError) as error:
        load_config(str(path), {})
    line = one_line(error)
    assert line.startswith(f"{path}: ")
    assert f"`{key}" in line


def test_an_unknown_key(tmp_path: Path, one_line: Callable[..., str]) -> None:
    path = tmp_path / "config.toml"
    path.write_text("bach = 3\n")
    with pytest.raises(InputError) as error:
        load_config(str(path), {})
    line = one_line(error)
    assert line.startswith(f"{path}: unknown key `bach` = 3; did you mean `batch`? ")
    for key in Config.model_fields:
        assert key in line


def test_a_flag_does_not_hide_what_is_wrong_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("batch = 0\n")
    with pytest.raises(InputError, match="config.toml: `batch` = 0"):
        load_config(str(path), {"batch": 3})


def test_a_wrong_flag_is_the_command_lines() -> None:
    with pytest.raises(InputError, match="^command line: `batch` = 0"):
        load_config(None, {"batch": 0})


@pytest.mark.parametrize(
    ("flag", "word", "message"),
    [
        ("--batch", "x", "'--batch': 'x'"),
        ("--batch", "1.5", "'--batch': '1.5'"),
        ("--learning-rate", "x", "'--learning-rate': 'x'"),
        ("--lr-schedule", "steps:at=1,x", "command line: `lr_schedule` = 'steps:at=1,x'"),
        ("--schedule", "x", "'--schedule': 'x'"),
        ("--compress", "x", "command line: `compress` = 'x'"),
    ],
)
def test_flags_of_a_wrong_kind(
    capsys: pytest.CaptureFixture[str],
    one_line: Callable[..., str],
    flag: str,
    word: str,
    message: str,
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", flag, word])
    assert ended.value.code == 2
    assert message in one_line(capsys.readouterr().err)


@pytest.mark.parametrize(
    ("key", "values", "message"),
    [
        (
            "std",
            "1e-45,1,1",
            "`std[0]` = 1e-45: should be at least 1e-06: images are divided by it",
        ),
        ("std", "1,1,1e-39", "`std[2]` = 1e-39: should be at least 1e-06"),
        (
            "std",
            "0.2,62.99,0.2",
            "`std[1]` = 62.99: should be at most 1, as values are from 0 to 1; divide",
        ),
        (
            "mean",
            "125.3,0.5,0.5",
            "`mean[0]` = 125.3: should be at most 1, as values are from 0 to 1; divide",
        ),
        ("mean", "1.001", "`mean[0]` = 1.001: should be at most 1"),
    ],
)
def test_means_and_deviations_are_of_values_from_0_to_1(
    one_line: Callable[..., str], key: str, values: str, message: str
) -> None:
    with pytest.raises(InputError) as error:
        load_config(None, {key: values})
    assert message in one_line(error)
    assert load_config(None, {"mean": "0,1,0.5", "std": "1,0.00392,1e-6"}).std == (1, 0.00392, 1e-6)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none.toml: cannot be read"):
        load_config(str(tmp_path / "none.toml"), {})


def test_rates_by_epoch() -> None:
    config = Config(learning_rate=0.5, lr_schedule="steps:at=2,3,6,factor=0.25")
    assert [learning_rate(config, epoch, 1) for epoch in range(8)] == pytest.approx(
        [0.5, 0.5, 0.125, 0.03125, 0.03125, 0.03125, 0.0078125, 0.0078125]
    )
    assert {learning_rate(Config(), epoch, 1) for epoch in (0, 1, 100)} == {0.01}


VALUES = st.one_of(
    st.integers(-2, 100),
    st.floats(),
    st.booleans(),
    st.text(max_size=4),
    st.none(),
    st.lists(st.integers(0, 5)),
)
KEYS = st.one_of(st.sampled_from([*OTHERS]), st.text("abcdefgh_", min_size=1, max_size=5))


@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_a_config_or_one_line(values: dict[str, Any]) -> None:
    try:
        config = load_config(None, values)
    except InputError as error:
        assert len(str(error).splitlines()) == 1
        return
    assert set(values) <= set(OTHERS)
    assert config.batch > 0
    assert all(learning_rate(config, epoch, 1) >= 0 for epoch in range(3))


def test_editors_know_all_keys() -> None:
    """`RunKeys` types the keyword arguments of `emuchain.plan`; network and cluster come before."""
    assert {*RunKeys.__annotations__, "network", "cluster"} == {*Config.model_fields}
    assert {*TrainKeys.__annotations__, "data"} == {*RunKeys.__annotations__}
