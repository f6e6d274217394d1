"""BaPipe's constants that its text leaves open, with their plausible ranges."""

from __future__ import annotations

from ..constants import Constant

ALL_REDUCE_SAMPLES = Constant(
    "gpus.all_reduce_samples",
    101.3,
    (96.0, 98.5, 101.3, 104.0, 107.0),
    "0.62 is rounded: 0.615 to 0.625",
    "0.62 of VGG-16 with DP on 4 GPUs",
)
"""Time of an all-reduce of VGG-16's gradients among 4 GPUs, in samples' computation of VGG-16."""

FEATURE_MBYTES = Constant(
    "gpus.feature_mbytes",
    88.4,
    (64.0, 70.0, 76.0, 82.0, 88.4),
    "those with which 32 layers fit on one GPU, and 34 do not",
    "32 layers on one GPU",
)
"""Features of an LSTM layer for a batch of 32, in MB."""

PARAMETER_BYTES = Constant(
    "gpus.parameter_bytes",
    32,
    (31.5, 31.75, 32),
    "those with which Table V's 32 and 42 layers come out, within two layers",
    "42 layers with GPipe on two GPUs",
)
"""Bytes of memory for each parameter; Adam's weight, gradient and two moments are 16."""

DSP_MHZ = Constant(
    "board.clock_mhz",
    116,
    (100, 108, 116, 124, 132),
    "those with which Table VI's three rows are within 5 %",
    "Table VI's three rows, whose largest deviation is least",
)
"""Multiply-accumulates of a DSP in a microsecond, of half-precision values."""

TOKENS = Constant(
    "gnmt.tokens",
    50,
    (30, 40, 50),
    "the mean of the corpus to the longest that is trained with",
)
"""Tokens of a sentence."""

RESNET_BATCH = Constant(
    "gpus.resnet50_batch",
    64,
    (32, 64, 128),
    "not printed; VGG-16 has 32 and 64, and 16 GiB have room for 128",
)
"""Samples of a GPU in ResNet-50's rows, with DP and PipeDream."""

CONSTANTS = (ALL_REDUCE_SAMPLES, FEATURE_MBYTES, PARAMETER_BYTES, DSP_MHZ, TOKENS, RESNET_BATCH)
