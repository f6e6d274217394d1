"""What slices send of a layer's outputs: as their engines make them, or after the SFU's first steps.

Where each data path has a fixed part of the link (`share = "paths"`), a slice cut by output channels, whose outputs are
complete, carries out the SFU's first steps on its own channels before it sends, so that a pool makes its maps smaller.
FPDeep's text does not say where the SFU stands under OCP (sections 4.1 and 5.1). The steps are those that work on each
channel alone, up to the first result that something else needs, too. So the numbers are the same either way.
"""

from __future__ import annotations

from ..cluster import LinkShare
from ..network import Layer, SfuStep, Shape
from .slices import Cut, cut_of


def steps_before_sending(layer: Layer, share: LinkShare) -> tuple[SfuStep, ...]:
    """Return the first steps of a layer's SFU, which each of its slices carries out before it sends."""
    if share is LinkShare.BYTES or cut_of(layer) is not Cut.OCP or layer.operation.recurs:
        return ()
    reads = [tensor.number for step in layer.sfu for tensor in step.reads]
    needed = reads + [tensor.number for tensor in layer.hands_on]
    found: list[SfuStep] = []
    at = layer.makes.number
    for step in layer.sfu:
        alone = [tensor.number for tensor in step.reads] == [at] and needed.count(at) == 1
        if not (alone and step.operation.by_channel):
            break
        found.append(step)
        at = step.makes.number
    return tuple(found)


def sent_shape(layer: Layer, share: LinkShare) -> Shape:
    """Return (channels, rows, columns) of a layer's outputs as its slices send them."""
    steps = steps_before_sending(layer, share)
    return steps[-1].output if steps else layer.output
