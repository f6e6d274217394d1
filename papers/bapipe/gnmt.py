"""GNMT-L by parameters, multiply-accumulates and bytes: the network of Tables III and V, which is not trained here.

After the public implementation that PipeDream's profile has: L/2 encoder and L/2 decoder layers of LSTM with 1,024
cells and two biases, of which the first encoder layer works in both directions; decoder layers take the attention's
context, too; a vocabulary of 32,320 with embeddings of source and target and a classifier of its own.
"""

from __future__ import annotations

from ...kernels.number import FP32
from ..constants import in_use, kept
from .constants import TOKENS
from .layers import ChainLayer

CELLS, VOCABULARY = 1024, 32320
_GATES = 4
_ATTENTION = 2 * CELLS * CELLS + 2 * CELLS + 1
"""Two projections, the scores' vector, its bias, its scale."""
_WORDS = VOCABULARY * CELLS


def _lstm(inputs: int) -> int:
    """Return the parameters of an LSTM layer, with PyTorch's two biases."""
    return _GATES * CELLS * (inputs + CELLS + 2)


def _lstm_macs(inputs: int) -> int:
    """Return the multiply-accumulates of a token."""
    return _GATES * CELLS * (inputs + CELLS)


@kept
def gnmt(layers: int) -> tuple[ChainLayer, ...]:
    """Return GNMT-L for sentences of `TOKENS`; L is even, and 4 or more.

    A decoder layer hands on the encoder's last outputs beside its own, an encoder layer its inputs, which are added
    later. An embedding counts one multiply-accumulate for each value that it looks up.
    """
    half, tokens = layers // 2, round(in_use(TOKENS))
    state = FP32.bytes_of(CELLS * tokens)
    encoders = [_layer("encoder 2", _lstm(2 * CELLS), _lstm_macs(2 * CELLS), 2 * state, 1)]
    encoders += [_layer(f"encoder {n}", _lstm(CELLS), _lstm_macs(CELLS), 2 * state, 1) for n in range(3, half + 1)]
    attention_macs = 2 * CELLS * CELLS + 2 * tokens * CELLS
    decoders = [_layer("decoder 1", _lstm(CELLS) + _ATTENTION, _lstm_macs(CELLS) + attention_macs, 2 * state, 1)]
    decoders += [
        _layer(f"decoder {n}", _lstm(2 * CELLS), _lstm_macs(2 * CELLS), 2 * state, 1) for n in range(2, half + 1)
    ]
    return (
        _layer("source embedding", _WORDS, CELLS, state, 0),
        _layer("encoder 1", 2 * _lstm(CELLS), 2 * _lstm_macs(CELLS), 2 * state, 2),
        *encoders,
        _layer("target embedding", _WORDS, CELLS, 2 * state, 0),
        *decoders,
        _layer("classifier", _WORDS + VOCABULARY, _WORDS, 0, 0),
    )


def _layer(name: str, parameters: int, token_macs: int, sent_bytes: int, lstm_layers: int) -> ChainLayer:
    tokens = round(in_use(TOKENS))
    return ChainLayer(name, parameters, tokens * token_macs, sent_bytes, lstm_layers=lstm_layers)


def parameters(layers: int) -> int:
    """Return the number of parameters of GNMT-L."""
    return sum(layer.parameters for layer in gnmt(layers))
