"""The configuration of a run: one model, each key of which is a key of the TOML file and a
command-line flag; `sources.py` has where its values come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import pydantic

from ...comm.collective import sums
from ...kernels.codec import codecs
from ...kernels.optimizers import optimizers
from ..common import (
    NO_FILE,
    Model,
    NotNegative,
    Positive,
)
from ..schedule import schedules
from . import roles
from .keys import (
    Augments,
    ChangesKey,
    ClassWeights,
    CodecKey,
    CutKey,
    Deviations,
    ExchangeKey,
    Factor,
    LoraKey,
    Means,
    Names,
    NotNegativeNumber,
    OptimizerKey,
    PositiveNumber,
    PrecisionKey,
    RatesKey,
    ScheduleKey,
    Sizes,
)
from .other_names import ELSEWHERE, IN_CHANGES, OTHER_NAMES, OTHER_VALUES
from .rates import FORMER, MOST_SINGLE, rate_schedules
from .settings import Settings

RUN_ONLY_KEYS = (
    *("test_samples", "patience", "mean", "std", "augment", "init", "new_layers"),
    *("rtl_device", "throttle", "stall_timeout", "out", "checkpoint", "resume", "log", "progress"),
)
"""Keys that matter only for training."""


class Config(Model):
    """Everything that a run depends on, apart from the files that it names."""

    former: ClassVar[Mapping[str, str]] = {
        **IN_CHANGES,
        **OTHER_NAMES,
        **OTHER_VALUES,
        **FORMER,
    }
    elsewhere: ClassVar[Mapping[str, str]] = ELSEWHERE

    network: Annotated[str, roles.NETWORK] = pydantic.Field(
        "quick-cifar",
        description="a network of the zoo, a TOML or ONNX file, or your code, FILE.py:FUNCTION",
    )
    input: Annotated[str | None, NO_FILE] = pydantic.Field(
        None,
        description=(
            "with `network` = FILE.py:FUNCTION: the sizes of a sample, such as 3x224x224, or 128 of"
            " symbols"
        ),
    )
    time_steps: Positive | None = pydantic.Field(
        None,
        description=(
            "time steps of a network that takes sequences; default: as many as its `input` has rows"
        ),
    )
    data: Annotated[str | None, roles.DATA] = pydantic.Field(
        None,
        description=(
            "`shapes` or `text` (built in); a folder with CIFAR-10 or MNIST, or with a folder of"
            " images for each class; FILE.npz or FILE.h5, with `images` and `labels`, or"
            " `inputs` and `targets`; FILE.csv, a table; FILE.txt, a text in UTF-8; default: `text` for a network that"
            " takes sequences, else `shapes`"
        ),
    )
    resize: Sizes = pydantic.Field(
        (), description="resize images: one number is the shorter side, two are rows and columns"
    )
    crop: Sizes = pydantic.Field(
        (),
        description=(
            "cut this size out of each image, from its centre: one number, or rows and columns"
        ),
    )
    channels: Literal["first", "last"] | None = pydantic.Field(
        None,
        description=(
            "whether channels of arrays in a file come first, before rows and columns, or last;"
            " default: the axis of length 1 or 3, if only one of them is that"
        ),
    )
    mean: Means = pydantic.Field(
        (),
        description=(
            "mean of each channel, 0 to 1, for normalisation with `std`; default: that of the"
            " training images"
        ),
    )
    std: Deviations = pydantic.Field(
        (), description="standard deviation of each channel; see `mean`"
    )
    augment: Augments = pydantic.Field(
        (),
        description=(
            "augmentation of training images, drawn by the seed: crop takes the window of `crop` at"
            " a random place, or without `crop` pads by an eighth first; flip mirrors half of them"
        ),
    )
    skip_broken: bool = pydantic.Field(
        False,
        description="skip broken images of a folder; all images are read once before the start",
    )
    test_share: Annotated[float, pydantic.Field(gt=0, lt=1)] = pydantic.Field(
        0.1,
        description=(
            "share of each class used for testing, if a folder or file of images has no test part"
        ),
    )
    split_seed: Annotated[int, pydantic.Field(ge=0, lt=1 << 63)] = pydantic.Field(
        0, description="seed that chooses these images, and orders those of a folder"
    )
    target_columns: Names = pydantic.Field(
        (),
        description=(
            "columns of a table that are the targets; default: one called target, label, y or class,"
            " or else the last"
        ),
    )
    text_samples: Literal["windows", "lines"] = pydantic.Field(
        "windows",
        description=(
            "samples of a text: adjacent windows of one character per time step, or lines, padded"
            " at the end"
        ),
    )
    tokenizer: Annotated[str | None, roles.TOKENIZER] = pydantic.Field(
        None,
        description=(
            "a file of the package tokenizers, such as Hugging Face's tokenizer.json, that makes the"
            " symbols of a text; default: its characters"
        ),
    )
    masked_share: Annotated[float, pydantic.Field(ge=0, lt=1)] = pydantic.Field(
        0.0,
        description=(
            "share of a text's symbols that are predicted where they stand, as BERT's 0.15: most of"
            " them masked, drawn by the seed; 0: the next symbol of each"
        ),
    )
    samples: Positive | None = pydantic.Field(
        None, description="use the first N training samples only"
    )
    test_samples: Positive | None = pydantic.Field(
        None, description="evaluate on the first N test samples only"
    )
    epochs: Positive = pydantic.Field(1, description="passes over the training samples")
    patience: Positive | None = pydantic.Field(
        None,
        description="end training when the test loss has not fallen for this many epochs",
    )
    batch: Positive = pydantic.Field(
        64, description="samples of a mini-batch, after which weights are updated"
    )
    micro_batch: Positive = pydantic.Field(
        16,
        description=(
            "samples computed in one block; changes neither the numbers nor, with split engines and"
            " streamed rows, the virtual time"
        ),
    )
    devices: Positive | None = pydantic.Field(
        None, description="emulated FPGAs; default: one for each rank"
    )
    schedule: ScheduleKey = pydantic.Field(
        "fpdeep",
        validate_default=True,
        description=(
            "the order of the devices' actions, such as sync, gpipe or 1f1b-as, or a file with one;"
            " `emuchain schedule --list` has a line for each"
        ),
        json_schema_extra={"choices": [*schedules()]},
    )
    warm_up: Annotated[str | None, NO_FILE] = pydantic.Field(
        None,
        description=(
            "for 1F1B and FBP: forwards of stage i of N before its first backward, such as"
            " `2(N-i)+1`"
        ),
    )
    chunks: Positive | None = pydantic.Field(
        None, description="for interleaved: stages per device; default: 2"
    )
    stages: Literal["channels", "layers"] = pydantic.Field(
        "channels",
        description="what the chain is cut into: slices of layers by channels, or whole layers",
    )
    cut: Annotated[CutKey | None, roles.CUT] = pydantic.Field(
        None,
        description=(
            "a cut made by hand: FILE.toml, or as text what each board has, such as `conv1:conv3`"
            " or `conv4[:30%]` (docs/tasks.md)"
        ),
    )
    recompute: Annotated[str, NO_FILE] = pydantic.Field(
        "none",
        description=(
            "layers whose features B computes again, so that less is kept: their names, `all`, or"
            " `auto`, as few as make all data fit"
        ),
    )
    engines: Literal["split", "shared", "turns"] | None = pydantic.Field(
        None,
        description=(
            "what runs on a board at the same time: FP, EB and PG on separate engines, F and B on"
            " one shared pool, or one action of the schedule at a time; default: the cluster's"
        ),
    )
    transport: Literal["streamed", "stored", "hidden"] | None = pydantic.Field(
        None,
        description=(
            "when a message leaves: row by row, after its action, or during it; default: the"
            " cluster's"
        ),
    )
    precision: PrecisionKey = pydantic.Field(
        "fp32",
        validate_default=True,
        description=(
            "format of activations, weights and errors, such as `bf16` or `mxfp8`; a table has one"
            " for each kind of numbers, and how they are rounded (docs/numbers.md)"
        ),
    )
    replicas: Positive = pydantic.Field(1, description="number of chains that train data-parallel")
    exchange: ExchangeKey = pydantic.Field(
        "ring",
        description=(
            f"how replicas exchange gradients: {', '.join(sums())}, such as `rings:groups=2`, or"
            " a file of steps (docs/exchange.md)"
        ),
    )
    groups: Positive = pydantic.Field(
        1, description="groups of replicas: each sums by a ring, then their leaders exchange"
    )
    zero: Annotated[int, pydantic.Field(ge=0, le=3)] = pydantic.Field(
        0,
        description=(
            "stage of ZeRO: replicas share out, from 1, what updates keep, from 2, gradients, too, and"
            " at 3, weights"
        ),
    )
    compress: CodecKey = pydantic.Field(
        "none",
        validate_default=True,
        description=(
            f"codec for gradients in transit: {'; '.join(codec.spelling for codec in codecs())}"
        ),
    )
    error_feedback: bool = pydantic.Field(
        False,
        description=(
            "keep what the codec drops of a gradient that is exchanged with other replicas, and add"
            " it to the next one"
        ),
    )
    compress_weights: CodecKey = pydantic.Field(
        "none",
        validate_default=True,
        description=(
            "codec applied to weights after each update, to see what its loss does to training"
        ),
    )
    compress_ratio: PositiveNumber | None = pydantic.Field(
        None, description="compression ratio of the codec, for simulate, which has no gradients"
    )
    cluster: Annotated[str, roles.CLUSTER] = pydantic.Field(
        "vc709", description="a cluster that comes with emuchain, or a TOML file"
    )
    changes: ChangesKey | None = pydantic.Field(
        None,
        description=(
            'changed values of keys of the cluster, such as `{"link.bandwidth_gbps" = 250}`; as a'
            " flag KEY=VALUE, for any key of the run, too"
        ),
    )
    faults: Annotated[str | None, roles.FAULTS] = pydantic.Field(
        None,
        description="a TOML file of faults to inject, in place of the cluster's; `none`: no faults",
    )
    balancing: Literal["auto", "none"] = pydantic.Field(
        "auto",
        description=(
            "auto: parameters that do not fit on their device are stored on others where that is"
            " faster"
        ),
    )
    memory: Literal["modelled", "ignored", "fpdeep"] = pydantic.Field(
        "modelled",
        description=(
            "modelled: data off chip takes time at the memory port; ignored: memory is left out;"
            " fpdeep: data off chip is free, and placed as in FPDeep"
        ),
    )
    rows_at_once: Positive = pydantic.Field(
        64,
        description=(
            "in networks with attention: rows of one pixel that wait for one another where weights,"
            " or keys and values, are off chip, and are read once for all of them"
        ),
    )
    padding: Annotated[float, pydantic.Field(ge=1, le=1000, allow_inf_nan=False)] = pydantic.Field(
        1.0,
        description=(
            "for the times of GPUs and pairs: length of padded sequences relative to the network's"
        ),
    )
    seed: Annotated[int, pydantic.Field(ge=0, lt=1 << 63)] = pydantic.Field(
        1, description="seed of initial weights, order of samples, and dropout"
    )
    init: Annotated[str | None, roles.WEIGHTS] = pydantic.Field(
        None,
        description=(
            "a file with the initial weights: a results file, a checkpoint, FILE.safetensors,"
            " FILE.onnx or FILE.pt; default: drawn by the seed"
        ),
    )
    new_layers: Names = pydantic.Field(
        (),
        description=(
            "with `init`: layers whose weights the seed draws all the same, such as a new last one;"
            " names, or ranges FIRST:LAST"
        ),
    )
    freeze: Names = pydantic.Field(
        (),
        description=(
            "layers that are not trained: names, or ranges FIRST:LAST in the order of the network"
        ),
    )
    lora: LoraKey | None = pydantic.Field(
        None,
        description=(
            "train adapters of layers, and rest all others: `r=8,alpha=16,on=qkv*`, with patterns"
            " of names parted by commas; `train=` names layers that are trained themselves"
        ),
    )
    optimizer: OptimizerKey = pydantic.Field(
        "sgd",
        description="update rule: sgd and nesterov with momentum, adam and adamw",
        json_schema_extra={"choices": [*optimizers()]},
    )
    learning_rate: Factor = pydantic.Field(0.01, description="learning rate of the optimizer")
    momentum: Annotated[NotNegativeNumber, pydantic.Field(lt=1)] = pydantic.Field(
        0.9, description="momentum of sgd and nesterov"
    )
    beta1: Annotated[NotNegativeNumber, pydantic.Field(lt=1)] = pydantic.Field(
        0.9, description="for adam and adamw: decay rate of the mean of gradients"
    )
    beta2: Annotated[NotNegativeNumber, pydantic.Field(lt=1)] = pydantic.Field(
        0.999, description="for adam and adamw: decay rate of the mean of their squares"
    )
    epsilon: Annotated[float, pydantic.Field(ge=1e-30, le=MOST_SINGLE, allow_inf_nan=False)] = (
        pydantic.Field(1e-8, description="for adam and adamw: added to the root of that mean")
    )
    weight_decay: Annotated[NotNegativeNumber, pydantic.Field(le=MOST_SINGLE)] = pydantic.Field(
        0.0005,
        description=(
            "this share of each weight is added to its gradient; adamw subtracts it from the weight"
            " itself"
        ),
    )
    clip_norm: (
        Annotated[float, pydantic.Field(ge=1e-30, le=MOST_SINGLE, allow_inf_nan=False)] | None
    ) = pydantic.Field(
        None,
        description=(
            "largest norm of the gradients of all parameters together; larger ones are scaled down"
            " to it"
        ),
    )
    lr_schedule: RatesKey = pydantic.Field(
        "constant",
        validate_default=True,
        description=(
            "what becomes of the learning rate after its warm-up: `step:every=1000,factor=0.1`, in"
            " mini-batches; `steps:at=10,20,factor=0.1`, after epochs; cosine, to 0 at the end of"
            " training"
        ),
        json_schema_extra={"choices": [*rate_schedules()]},
    )
    lr_warm_up: Annotated[int, pydantic.Field(ge=0)] = pydantic.Field(
        0, description="mini-batches at the start over which the learning rate rises linearly"
    )
    label_smoothing: Annotated[NotNegativeNumber, pydantic.Field(lt=1)] = pydantic.Field(
        0.0, description="share of each training label that is spread evenly over all classes"
    )
    loss: Literal["softmax", "mse", "bce"] | None = pydantic.Field(
        None,
        description=(
            "what is minimised: softmax with cross-entropy, for classes; mse, for numbers; bce, for"
            " several labels of yes or no; default: the operation that closes the network"
        ),
    )
    class_weights: ClassWeights = pydantic.Field(
        (),
        description=(
            "weight of each class in the loss: a mini-batch's loss is the weighted mean over its"
            " labels, as PyTorch's; with bce, of its labels of yes (`pos_weight`)"
        ),
    )
    rtl_device: NotNegative | None = pydantic.Field(
        None,
        description=(
            "a device of the chain that Verilator simulates as RTL, under sync (docs/rtl.md)"
        ),
    )
    throttle: Literal["none", "wall"] = pydantic.Field(
        "none", description="wall: enforce the links' bandwidth and latency in real time"
    )
    stall_timeout: NotNegativeNumber = pydantic.Field(
        60.0,
        description=(
            "seconds without progress on any rank after which the run ends, with status 3; 0: never"
        ),
    )
    out: Annotated[str | None, roles.OUTPUT] = pydantic.Field(
        None, description="the HDF5 file of the results"
    )
    checkpoint: Annotated[str | None, roles.NEXT_CHECKPOINT] = pydantic.Field(
        None,
        description=(
            "a file from which the run can be resumed: written after each epoch, and when the run"
            " is stopped"
        ),
    )
    checkpoint_every: Positive | None = pydantic.Field(
        None,
        description=(
            "mini-batches between checkpoints within an epoch; the chain drains there, with or"
            " without a file"
        ),
    )
    resume: Annotated[str | None, roles.CHECKPOINT] = pydantic.Field(
        None, description="the checkpoint to resume from; it holds all other settings"
    )
    log: Annotated[str | None, roles.LOG] = pydantic.Field(
        None,
        description=(
            "loss, rate and virtual time of each mini-batch, as they come: `csv`, `csv:FILE`"
            " (log.csv), `tensorboard` or `tensorboard:FOLDER` (runs)"
        ),
    )
    progress: Literal["auto", "bar", "plain", "steps", "none"] = pydantic.Field(
        "auto",
        description=(
            "auto: a live bar on a terminal, plain lines elsewhere; steps: a line for each"
            " mini-batch"
        ),
    )

    @pydantic.field_validator("log")
    @classmethod
    def _known_log(cls, value: str | None) -> str | None:
        if value is not None and value.partition(":")[0] not in ("csv", "tensorboard"):
            raise ValueError("should be csv, csv:FILE, tensorboard or tensorboard:FOLDER")
        return value

    def __reduce__(self) -> tuple[type[Settings], tuple[()], dict[str, object]]:
        """Pickle the values alone, so that other ranks need not import pydantic."""
        return Settings, (), {key: getattr(self, key) for key in type(self).model_fields}
