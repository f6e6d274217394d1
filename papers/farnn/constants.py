"""FARNN's constants that its text leaves open, with their plausible ranges. Four are fitted, each to one row."""

from __future__ import annotations

from ..constants import Constant

PCIE_GBPS = Constant(
    "link.bandwidth_gbps",
    48,
    (40, 44, 48, 52, 55),
    "those with which utilisation at batch 1 is within 3 points of 82.8 %",
    "82.8 % utilisation at batch 1",
)
"""Of each direction between GPU and FPGA, for weights: 6.0 GB/s."""

RECURRENT_US = Constant(
    "board.recurrent_us",
    36.3,
    (35.8, 36.0, 36.3, 36.6, 36.8),
    "3.6 is rounded: 3.55 to 3.65",
    "3.6 times as fast as cuDNN-Std at 1,600 steps, FARNN-13P",
)
"""Least time of a phase of cuDNN's standard form that waits for the one before."""

PERSISTENT = Constant(
    "board.persistent_gbytes_per_s",
    658,
    (651, 655, 658, 662, 665),
    "52 % is rounded: 51.5 to 52.5",
    "52 % less time than cuDNN-PD, LSTM on FARNN-9P",
)
"""Rate at which cuDNN's persistent form reads recurrent weights of an LSTM."""

PERSISTENT_GRU = Constant(
    "board.persistent_gru_gbytes_per_s",
    1074,
    (1068, 1071, 1074, 1079, 1084),
    "32 % is rounded: 31.5 to 32.5",
    "32 % less time than cuDNN-PD, GRU on FARNN-9P",
)
"""The same of a GRU."""

GEMM_EFFICIENCY = Constant(
    "board.gemm_efficiency",
    0.9,
    (0.8, 0.85, 0.9, 0.95, 1.0),
    "close to the theoretical peak (section 4.1)",
)
"""Share of the GPU's peak that products over all time steps reach."""

RNNT_STEPS = Constant(
    "rnnt.steps",
    548,
    (274, 548, 1096, 1600),
    "the paper has none; the sequences of Deep Speech 2 are of the same corpus",
)
"""Time steps of RNN-T's encoder."""

ENCODER_SHARE = Constant(
    "rnnt.encoder_share",
    0.65,
    (0.62, 0.635, 0.65, 0.665, 0.68),
    "more than 65 % (section 6.5); 40 and 48 % with 2.7 and 4.2 times imply 62 to 64 %",
)
"""Share of the encoder in RNN-T's time on a GPU alone."""

CONSTANTS = (PCIE_GBPS, RECURRENT_US, PERSISTENT, PERSISTENT_GRU, GEMM_EFFICIENCY, RNNT_STEPS, ENCODER_SHARE)
