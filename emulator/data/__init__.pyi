from .dataset import Dataset, Normalisation, png, preview_picture
from .fetch import Progress, fetch_data
from .lazy import Images, LazyImages, ReadAhead
from .load import Description, data_files, describe_data, load_data
from .own import as_data, as_one, as_shape, takes_shape
from .reading import Reading
from .text import NgramBits, is_text, ngram_bits, symbol_count
from .tokens import read_tokenizer

__all__ = [
    "Dataset",
    "Description",
    "Images",
    "LazyImages",
    "NgramBits",
    "Normalisation",
    "Progress",
    "ReadAhead",
    "Reading",
    "as_data",
    "as_one",
    "as_shape",
    "data_files",
    "describe_data",
    "fetch_data",
    "is_text",
    "load_data",
    "ngram_bits",
    "png",
    "preview_picture",
    "read_tokenizer",
    "symbol_count",
    "takes_shape",
]
