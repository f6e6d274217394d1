"""A picture of a data set."""

import numpy as np
from numpy.typing import NDArray

from .dataset import Dataset

_GAP = 2  # pixels between two images
_SCALE = 2  # pixels of the picture per pixel of an image, each way


def preview_picture(data: Dataset, columns: int) -> NDArray[np.uint8]:
    """Return a picture (h, w, 3) of the first `columns` training images of each class, one class per row.

    Three channels are shown as red, green and blue; of any other number, the first channel is shown in grey.
    """
    _, h, w = data.shape
    picture = np.full((data.n_classes * (h + _GAP) - _GAP, columns * (w + _GAP) - _GAP, 3), 255, np.uint8)
    for k in range(data.n_classes):
        for column, place in enumerate(np.flatnonzero(data.train_labels == k)[:columns]):
            image = data.train_images[place] if data.shape[0] == 3 else data.train_images[place, :1]
            top, left = k * (h + _GAP), column * (w + _GAP)
            picture[top : top + h, left : left + w] = image.transpose(1, 2, 0)
    return picture.repeat(_SCALE, axis=0).repeat(_SCALE, axis=1)
