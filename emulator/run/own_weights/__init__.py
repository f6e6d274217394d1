"""Weights from files and into files: results, checkpoints, safetensors, each checked against the network."""

from .read import Found, read_found, read_weights
from .safetensors_file import safetensors_image

__all__ = ["Found", "read_found", "read_weights", "safetensors_image"]
