"""The keys of a run as types of keyword arguments, so that editors complete them and type checkers
know them; `Config` validates them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from typing_extensions import TypedDict

AnyPath: TypeAlias = str | os.PathLike[str]
Sizes: TypeAlias = int | str | Sequence[int]
ByChannel: TypeAlias = float | str | Sequence[float]
Names: TypeAlias = str | Sequence[str]


class TrainKeys(TypedDict, total=False):
    """The keys of `emuchain.train`, whose `data` is more than a key (docs/configuration.md)."""

    input: str | None
    time_steps: int | None
    resize: Sizes
    crop: Sizes
    channels: Literal["first", "last"] | None
    mean: ByChannel
    std: ByChannel
    augment: Names
    skip_broken: bool
    test_share: float
    split_seed: int
    target_columns: Names
    text_samples: Literal["windows", "lines"]
    tokenizer: AnyPath | None
    masked_share: float
    samples: int | None
    test_samples: int | None
    epochs: int
    patience: int | None
    batch: int
    micro_batch: int
    devices: int | None
    schedule: str
    warm_up: str | None
    chunks: int | None
    stages: Literal["channels", "layers"]
    cut: Any
    recompute: str
    engines: Literal["split", "shared", "turns"] | None
    transport: Literal["streamed", "stored", "hidden"] | None
    precision: Any
    replicas: int
    exchange: str
    groups: int
    zero: int
    compress: str
    error_feedback: bool
    compress_weights: str
    compress_ratio: float | None
    changes: Mapping[str, object] | None
    faults: Any
    balancing: Literal["auto", "none"]
    memory: Literal["modelled", "ignored", "fpdeep"]
    rows_at_once: int
    padding: float
    seed: int
    init: AnyPath | None
    new_layers: Names
    freeze: Names
    lora: str | None
    optimizer: str
    learning_rate: float
    momentum: float
    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float
    clip_norm: float | None
    lr_schedule: str
    lr_warm_up: int
    label_smoothing: float
    loss: str | None
    class_weights: ByChannel
    rtl_device: int | None
    throttle: Literal["none", "wall"]
    stall_timeout: float
    out: AnyPath | None
    checkpoint: AnyPath | None
    checkpoint_every: int | None
    resume: AnyPath | None
    log: str | None
    progress: Literal["auto", "bar", "plain", "steps", "none"]


class RunKeys(TrainKeys, total=False):
    """The keys of `emuchain.plan` and `emuchain.simulate`."""

    data: AnyPath | None
