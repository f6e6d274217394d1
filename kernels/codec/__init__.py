"""Codecs for gradient messages, with one interface; each is a file here."""

from .codec import Codec, NoCodec, codecs, parse_codec, parsed_number
from .inceptionn import Inceptionn

__all__ = ["Codec", "Inceptionn", "NoCodec", "codecs", "parse_codec", "parsed_number"]
