from .dataset import Dataset, Normalisation, png, preview_picture
from .fetch import Progress, fetch_data
from .lazy import Images, LazyImages, ReadAhead
from .load import data_files, describe_data, load_data
from .reading import Reading
from .text import NgramBits, is_text, ngram_bits, symbol_count

__all__ = [
    "Dataset",
    "Images",
    "LazyImages",
    "NgramBits",
    "Normalisation",
    "Progress",
    "ReadAhead",
    "Reading",
    "data_files",
    "describe_data",
    "fetch_data",
    "is_text",
    "load_data",
    "ngram_bits",
    "png",
    "preview_picture",
    "symbol_count",
]
