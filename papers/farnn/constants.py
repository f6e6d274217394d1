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
    (35.8, 36.0, 36.3, 36.6, 36.8, 39.0, 40.7, 43.0, 45.1, 45.5),
    "3.6 is FARNN-13P's, rounded, to 36.8, FARNN-9P's at 45.5; Fig. 9 needs less than 40.7, Fig. 2 more than 45.1",
    "3.6 times as fast as cuDNN-Std at 1,600 steps, FARNN-13P",
)
"""Least time of a phase of cuDNN's standard form that waits for the one before.

The text does not say whose 3.6 is. No value gives both Fig. 2's share and Fig. 9's order.
"""

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

_MISSING = "Table 2, which has the number, is missing from the text"

PES_9P_LSTM = Constant(
    "farnn.pes_lstm_9p",
    256,
    (256, 272, 288, 304, 320, 336),
    f"{_MISSING}; more than 256 (section 5.1.3); 6,840 DSPs are enough for 342 of five each",
)
"""PEs of each of four MVM units, of FARNN-9P for LSTM."""

PES_9P_GRU = Constant(
    "farnn.pes_gru_9p",
    384,
    (368, 384, 400, 416, 432, 448),
    f"{_MISSING}; weights of 1,280 cells need 356, 6,840 DSPs are enough for 456 of five each",
)
"""PEs of each of three."""

PES_13P_LSTM = Constant(
    "farnn.pes_lstm_13p",
    384,
    (368, 384, 400, 416, 432, 448, 464),
    f"{_MISSING}; RNN-T's weights need 356; a VU13P has 1.8 times the DSPs of a VU9P, as 460 are of 256",
)
"""PEs of each of four MVM units, of FARNN-13P for LSTM; FARNN-VS has twice as many."""

PES_13P_GRU = Constant(
    "farnn.pes_gru_13p",
    576,
    (512, 544, 576, 608, 640, 672, 688),
    f"{_MISSING}; a VU13P has 1.33 times the UltraRAM of a VU9P, and 1.8 times the DSPs",
)
"""PEs of each of three."""

CONSTANTS = (
    *(PCIE_GBPS, RECURRENT_US, PERSISTENT, PERSISTENT_GRU, GEMM_EFFICIENCY, RNNT_STEPS, ENCODER_SHARE),
    *(PES_9P_LSTM, PES_9P_GRU, PES_13P_LSTM, PES_13P_GRU),
)
