"""FPDeep's constants that its text leaves open, with their plausible ranges."""

from __future__ import annotations

from ..constants import Choice, Constant

DSP_SHARE = Constant(
    "board.dsp_share",
    0.833,
    (0.80, 0.81, 0.82, 0.83, 0.833, 0.84, 0.85, 0.86),
    '"roughly 80 %" (section 6.3.1)',
    "the mean of Table 6's GOPS",
)
CONSTANTS = (
    DSP_SHARE,
    Constant("board.clock_mhz", 200, (190, 195, 200, 205, 210), "no clock is stated; 5 %", "Table 6's GOPS"),
    Constant(
        "board.power_w", 31.6, (30.0, 30.8, 31.6, 32.4, 33.2), "no power is stated; 5 %", "Table 6: GOPS over GOPS/J"
    ),
    Constant("link.latency_ns", 1000, (0, 500, 1000, 2000, 5000), "no latency is stated; of serial links"),
    Constant("board.lut_per_dsp", 83, (60, 70, 83, 100, 110), "of published single-precision engines"),
)

CONV2 = Choice(
    "alexnet.conv2",
    {"by-inputs": None, "by-outputs": "OCP"},
    "its 96 input channels are cut over about 30 of 75 FPGAs; section 4.1 has OCP where inputs are too few",
)
"""Along which channels AlexNet's conv2 is cut beyond 30 FPGAs: by its inputs, since they are 16 or more, or its 256
outputs."""

FC_BOARD = Choice(
    "mapping.fc_board",
    {"alone": None, "shared": "shared"},
    "section 6.3.1 has FPGAs of 15 that work solely on CONV layers; of larger clusters the text says nothing",
)
"""Whether the last board has the fully connected layers to itself with more than 15 FPGAs, or takes channels of
convolutions, too, in turn with them: with 80 FPGAs VGG-16's works 48 % of the time."""

CHOICES = (CONV2, FC_BOARD)
