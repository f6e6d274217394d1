"""The forms of the micro-kernel: one of them for each processor, and all with the same bits."""

import pytest

from emuchain.kernels.form import FORMS, SETTING, chosen_form, host_form

from ..every_form import printed_in_every_form

_DIGEST = """
import hashlib
import numpy as np
from emuchain.kernels import conv
from emuchain.kernels.conv import Sums
from emuchain.kernels.form import FORM
rng, digest = np.random.default_rng(1), hashlib.sha256()
for n, ic, oc, size, kernel, stride, pad in (
    (1, 3, 21, 19, 11, 4, 2), (2, 21, 100, 6, 3, 1, 1), (3, 5, 1, 9, 5, 2, 2), (5, 64, 64, 2, 3, 1, 1),
    (1, 1, 64, 13, 1, 3, 0), (2, 40, 70, 3, 3, 1, 0), (7, 100, 3, 1, 1, 1, 0), (1, 130, 80, 4, 3, 1, 1),
):
    x = rng.standard_normal((n, ic, size, size), np.float32)
    w = rng.standard_normal((oc, ic, kernel, kernel), np.float32)
    y = conv.forward(x, w, stride=stride, pad=pad)
    partial = rng.standard_normal(x.shape, np.float32)
    for sums in Sums:
        if sums is Sums.INT32:
            x, w, y = (np.rint(8 * array) for array in (x, w, y))
        for result in (conv.forward(x, w, stride=stride, pad=pad, sums=sums),
                       conv.error(y, w, x.shape, stride=stride, pad=pad, partial=partial, sums=sums),
                       conv.gradient(x, y, w.shape, stride=stride, pad=pad, sums=sums)):
            digest.update(result.tobytes())
print(FORM.name, digest.hexdigest())
"""


@pytest.mark.slow
def test_every_form_gives_the_same_bits() -> None:
    found = dict(words.split() for words in printed_in_every_form(_DIGEST).values())
    assert list(found) == list(FORMS)
    assert len(set(found.values())) == 1


@pytest.mark.parametrize(
    "features, name",
    [
        ("+sse2,+avx2,+avx512f", "avx512"),
        ("+sse2,+avx2,-avx512f", "avx2"),
        ("+neon,+fp-armv8", "neon"),
        ("+sse2", "portable"),
        ("", "portable"),
    ],
)
def test_the_form_follows_from_the_host(features: str, name: str) -> None:
    assert host_form(features).name == name


def test_an_unknown_form_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, "avx1024")
    with pytest.raises(
        ValueError, match="'avx1024': unknown form; choose from avx512, avx2, neon, portable"
    ):
        chosen_form()
