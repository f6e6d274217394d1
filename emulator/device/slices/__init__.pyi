from .attention import AttentionSlice
from .conv import ConvSlice, VocabularySlice
from .dots import DotSlice, DotVocabularySlice
from .numerics import Learnt, Lengths, SliceNumerics, State
from .recurrent import TAPE, RecurrentSlice, RoundedSteps, all_backward, all_forward, states_before
from .recurrent_weights import array_shapes, joined_weights, kernel_of, named_weights

__all__ = [
    "TAPE",
    "AttentionSlice",
    "ConvSlice",
    "DotSlice",
    "DotVocabularySlice",
    "Learnt",
    "Lengths",
    "RecurrentSlice",
    "RoundedSteps",
    "SliceNumerics",
    "State",
    "VocabularySlice",
    "all_backward",
    "all_forward",
    "array_shapes",
    "joined_weights",
    "kernel_of",
    "named_weights",
    "states_before",
]
