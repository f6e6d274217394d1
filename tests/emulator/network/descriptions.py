"""What tests of networks share: descriptions as TOML text."""

from __future__ import annotations

CONV = 'type = "conv", channels = 4, kernel = 3'
FC = 'type = "fc", features = 10'
SOFTMAX = 'type = "softmax"'


def described(*layers: str, head: str = 'name = "n"\ninput = [3, 8, 8]\n') -> str:
    """A description with these layers."""
    return head + "layers = [\n" + "".join(f"  {{ {layer} }},\n" for layer in layers) + "]\n"
