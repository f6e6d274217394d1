"""Codecs for gradient messages, with one interface; each is a file here."""

from .codec import Codec, NoCodec, codecs, parse_codec
from .inceptionn import Inceptionn
from .truncation import Truncation

__all__ = ["Codec", "Inceptionn", "NoCodec", "Truncation", "codecs", "parse_codec"]
