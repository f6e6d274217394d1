"""Fine-tuning in a plan: which layers a run freezes, and which begin anew beside the weights of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common import InputError
from ..network import Network, named_layers, with_frozen

if TYPE_CHECKING:
    from ..config import Config


def tuned(config: Config, network: Network) -> Network:
    """Return the network with the layers frozen that a configuration names.

    Raises:
        InputError: it names no such layers, or new ones without `init`, or one of two layers that share weights.
    """
    drawn = drawn_layers(config, network)
    if drawn and config.init is None and config.resume is None:
        raise InputError(
            f"`new_layers` = {','.join(config.new_layers)!r}: without `init`, the seed draws all layers; add `init`, a"
            " file with the weights of the others"
        )
    for head in network.heads:
        assert head.tied is not None
        if (head.name in drawn) != (head.tied.name in drawn):
            raise InputError(f"`new_layers`: {head.name} has the weights of {head.tied.name}; name both or none")
    return with_frozen(network, config.freeze)


def drawn_layers(config: Config, network: Network) -> frozenset[str]:
    """Return the layers whose first weights the seed draws although others come from a file.

    Raises:
        InputError: there is no such layer.
    """
    return frozenset(named_layers(network, config.new_layers, "new_layers"))
