from .dataset import Dataset, Normalisation
from .fetch import Progress, fetch_data
from .load import describe_data, load_data
from .png import png
from .preview import preview_picture
from .softmax import linear_accuracy

__all__ = [
    "Dataset",
    "Normalisation",
    "Progress",
    "describe_data",
    "fetch_data",
    "linear_accuracy",
    "load_data",
    "png",
    "preview_picture",
]
