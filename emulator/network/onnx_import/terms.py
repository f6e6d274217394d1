"""Terms that are added to scores of attention, as `operations/attention.py` has them: slopes of heads,
by which scores fall with the distance of a query from a key.

A number that all keys of a query have more changes nothing, because softmax does not see it: files
have slopes times keys' places, too (Bloom).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....kernels.attention import alibi_slopes
from ..onnx_graph import OnnxNode, shortest

_CLOSE = 1e-5
"""Of the largest term, how far another may be from that of a slope: single precision."""


def slopes_of(
    node: OnnxNode, terms: NDArray[Any], heads: int, tied: NDArray[np.intp], *, causal: bool
) -> dict[str, object]:
    """Return the keys of `attention` for terms (…, rows, rows) of all samples' heads, which stand
    at the places `tied` here.

    Raises:
        InputError: they are no slopes, or not the same for all samples.
    """
    rows = terms.shape[-1]
    far = np.arange(rows)[:, None] - np.arange(rows)
    seen = far >= 0 if causal else np.ones_like(far, bool)
    slopes = np.full(heads, np.nan)
    for plane, place in zip(np.ndindex(terms.shape[:-2]), (tied % heads).tolist(), strict=True):
        own = terms[plane] - terms[plane].diagonal()[:, None]
        slope = -own[-1, 0] / max(1, rows - 1)
        largest = max(1.0, np.abs(own[seen]).max())
        apart = np.abs(own + slope * np.abs(far))[seen].max()
        is_new = bool(np.isnan(slopes[place]))
        if apart > _CLOSE * largest or not (is_new or np.isclose(slopes[place], slope)):
            raise node.refusal(OTHER_TERMS)
        slopes[place] = slope
    alibi = np.array(alibi_slopes(heads))
    if np.allclose(slopes, alibi, rtol=_CLOSE, atol=0):
        return {"alibi": True}
    return {"slopes": tuple(shortest(float(slope)) for slope in slopes)} if slopes.any() else {}


OTHER_TERMS = (
    "adds other terms to scores than slopes of heads times the distance of query and key (ALiBi), the"
    " same for all samples, which is not supported"
)
