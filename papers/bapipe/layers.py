"""A network as a pipeline of GPUs sees it, a chain of layers, and PipeDream's cuts of it; GNMT-L as
such a chain.

The cuts are exact: no other cut has a faster slowest stage or link.

GNMT-L, the network of Tables III and V, is not trained here. Its parameters, multiply-accumulates
and bytes are those of the public implementation that PipeDream's profile has: L/2 encoder and L/2
decoder layers of LSTM with 1,024 cells and two biases, of which the first encoder layer works in
both directions; decoder layers take the attention's context, too; a vocabulary of 32,320 with
embeddings of source and target and a classifier of its own.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...emulator.mapping import Slice, cut_channels
from ...emulator.network import load_network
from ...emulator.profile import PartNeeds, boundary_bytes
from ...kernels.number import FP32
from ..claim import constant
from ..constants import in_use, kept


@dataclasses.dataclass(frozen=True)
class ChainLayer:
    """A layer of a chain, for one sample: `macs` of FP, `sent_bytes` across a cut behind it.

    `kept_bytes` are the features kept from F to B. Where they are not known, they count as
    `lstm_layers`.
    """

    name: str
    parameters: int
    macs: int
    sent_bytes: int
    kept_bytes: int = 0
    lstm_layers: int = 0

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the weights, or of their gradients."""
        return FP32.bytes_of(self.parameters)


@functools.cache
def zoo_layers(name: str) -> tuple[ChainLayer, ...]:
    """Return a network of the zoo as a chain; shortcuts cross every cut that they span."""
    network = load_network(name)
    return tuple(
        ChainLayer(
            layer.name,
            layer.parameters,
            layer.macs,
            boundary_bytes(network, layer.index),
            PartNeeds.of(Slice(layer, 0, cut_channels(layer))).feature_bytes,
        )
        for layer in network.layers
    )


class Replicated(NamedTuple):
    """A stage of PipeDream's: layers begin … end-1 on several devices that share its batches."""

    begin: int
    end: int
    devices: int


def pipedream_stages(
    layers: Sequence[ChainLayer],
    devices: int,
    stage: Callable[[int, int, int], float],
    links: Sequence[float],
) -> tuple[Replicated, ...]:
    """Return PipeDream's partition, by its dynamic programme over computation and communication;
    memory has no part.

    Args:
        layers: the chain.
        devices: number of devices.
        stage: the time of layers begin … end-1 for a batch, shared by a number of devices with
            their all-reduce.
        links: the time of features and errors across a cut behind each layer.
    """

    @functools.cache
    def best(end: int, count: int) -> tuple[float, tuple[Replicated, ...]]:
        fastest: tuple[float, tuple[Replicated, ...]] = (
            stage(0, end, count),
            (Replicated(0, end, count),),
        )
        for cut in range(1, end):
            for last in range(1, count):
                time, before = best(cut, count - last)
                slowest = max(time, links[cut - 1], stage(cut, end, last))
                # Of partitions that differ by rounding alone the first one stays.
                if slowest < fastest[0] and not math.isclose(slowest, fastest[0]):
                    fastest = slowest, (*before, Replicated(cut, end, last))
        return fastest

    return best(len(layers), devices)[1]


def straight_stages(
    layers: int, devices: int, stage: Callable[[int, int], float]
) -> tuple[int, ...]:
    """Return the ends of PipeDream's stages, by time alone, where none is replicated.

    As above, the first stages are as fast as they can be, whatever the last one takes; of equal
    ones, they begin as early as possible. So the cut may be another one than that of
    `mapping.cut_layers`, which is as fast.

    Args:
        layers: number of layers.
        devices: number of devices, each of which has at least one layer.
        stage: the time of layers begin … end-1.
    """
    best: dict[int, tuple[float, tuple[int, ...]]] = {
        end: (stage(0, end), ()) for end in range(1, layers + 1)
    }
    for device in range(1, devices):
        shorter, best = best, {}
        for end in range(device + 1, layers + 1):
            # Of equal times the tuples of cuts decide: the earlier cut.
            best[end] = min(
                (max(shorter[cut][0], stage(cut, end)), (*shorter[cut][1], cut))
                for cut in range(device, end)
            )
    return (*best[layers][1], layers)


TOKENS = constant("bapipe", "gnmt.tokens")
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

    A decoder layer hands on the encoder's last outputs beside its own, an encoder layer its inputs,
    which are added later. An embedding counts one multiply-accumulate for each value that it looks
    up.
    """
    half, tokens = layers // 2, round(in_use(TOKENS))
    state = FP32.bytes_of(CELLS * tokens)
    encoders = [_layer("encoder 2", _lstm(2 * CELLS), _lstm_macs(2 * CELLS), 2 * state, 1)]
    encoders += [
        _layer(f"encoder {n}", _lstm(CELLS), _lstm_macs(CELLS), 2 * state, 1)
        for n in range(3, half + 1)
    ]
    attention_macs = 2 * CELLS * CELLS + 2 * tokens * CELLS
    decoders = [
        _layer(
            "decoder 1", _lstm(CELLS) + _ATTENTION, _lstm_macs(CELLS) + attention_macs, 2 * state, 1
        )
    ]
    decoders += [
        _layer(f"decoder {n}", _lstm(2 * CELLS), _lstm_macs(2 * CELLS), 2 * state, 1)
        for n in range(2, half + 1)
    ]
    return (
        _layer("source embedding", _WORDS, CELLS, state, 0),
        _layer("encoder 1", 2 * _lstm(CELLS), 2 * _lstm_macs(CELLS), 2 * state, 2),
        *encoders,
        _layer("target embedding", _WORDS, CELLS, 2 * state, 0),
        *decoders,
        _layer("classifier", _WORDS + VOCABULARY, _WORDS, 0, 0),
    )


def _layer(
    name: str, parameters: int, token_macs: int, sent_bytes: int, lstm_layers: int
) -> ChainLayer:
    tokens = round(in_use(TOKENS))
    return ChainLayer(name, parameters, tokens * token_macs, sent_bytes, lstm_layers=lstm_layers)


def parameters(layers: int) -> int:
    """Return the number of parameters of GNMT-L."""
    return sum(layer.parameters for layer in gnmt(layers))
