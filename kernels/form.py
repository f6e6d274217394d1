"""The form of the micro-kernel: how wide its vectors are, and how many accumulators a tile keeps in
registers.

Each form suits one kind of processor. All give the same bits, and all run on every processor: the
compiler splits or spills what the registers cannot hold. The environment variable
EMUCHAIN_KERNEL_FORM selects one.

Products of integers have kinds of their own: `vnni` (AVX-512 VNNI, AVX-VNNI), `pairs` (AVX2,
AVX-512BW) and `portable`. A processor runs only those that it has; EMUCHAIN_KERNEL_PRODUCTS selects
one of them.
"""

from __future__ import annotations

import dataclasses
import os

from llvmlite import binding

SETTING = "EMUCHAIN_KERNEL_FORM"
PRODUCTS_SETTING = "EMUCHAIN_KERNEL_PRODUCTS"


@dataclasses.dataclass(frozen=True)
class Form:
    """Vectors of `width` floats; a tile of v vectors by up to `pixels[v - 1]` pixels.

    Each pixel takes v accumulators, and one address register, of which processors have fewer. In
    recurrent layers, a tile of s samples has up to `panel_vectors[s - 1]` vectors of a panel: all
    that the registers hold.
    """

    name: str
    width: int
    pixels: tuple[int, ...]
    panel_vectors: tuple[int, ...]

    @property
    def vectors(self) -> int:
        """Largest number of vectors side by side."""
        return len(self.pixels)

    @property
    def lanes(self) -> int:
        """Number of floats in a row of the widest tile."""
        return self.width * self.vectors

    @property
    def most_rows(self) -> int:
        """Largest number of rows of a tile: pixels, or samples of recurrent layers."""
        return max(*self.pixels, len(self.panel_vectors))

    @property
    def panel(self) -> int:
        """Lanes of a panel of recurrent layers' weights."""
        return self.width * self.panel_vectors[0]


_MANY, _FEW = (8, 8, 8, 4, 4, 4), (8, 4, 4, 2, 2, 2)  # powers of two: there is code for these
FORMS = {
    form.name: form
    for form in (
        Form(
            "avx512", 16, (12, 10, 8, 6), _MANY
        ),  # 32 registers: at most 24 sums, 4 weights, 1 number in all lanes
        Form("avx2", 8, (9, 6), _FEW),  # 16 registers
        Form("neon", 4, (12, 12, 8, 6), _MANY),  # 32 registers
        Form("portable", 4, (8, 4), _FEW),  # 16 registers
    )
}


def host_form(features: str) -> Form:
    """Return the form for a processor with these features, in LLVM's notation: "+avx2,-avx512f" and
    so on.
    """
    have = features.split(",")
    for feature, name in (("+avx512f", "avx512"), ("+avx2", "avx2"), ("+neon", "neon")):
        if feature in have:
            return FORMS[name]
    return FORMS["portable"]


def cpu_features() -> str:
    """Return the features that Numba compiles for: those that the environment gives, maybe none, or
    the host's.

    `generic` processors have none but those given.
    """
    is_generic = os.environ.get("NUMBA_CPU_NAME", "").lower() == "generic"
    given = os.environ.get("NUMBA_CPU_FEATURES", "" if is_generic else None)
    return str(binding.get_host_cpu_features().flatten()) if given is None else given


def chosen_form() -> Form:
    """Return the form that the environment selects, or else the host's.

    Raises:
        ValueError: there is no form of that name.
    """
    name = os.environ.get(SETTING, "")
    if not name:
        return host_form(cpu_features())
    if name not in FORMS:
        raise ValueError(f"{SETTING} = {name!r}: unknown form; choose from {', '.join(FORMS)}")
    return FORMS[name]


FORM = chosen_form()


def products_of(form: Form, features: str) -> tuple[str, ...]:
    """Return the kinds of integer products that a processor with these features has in a form, the
    fastest first.
    """
    have = set(features.split(","))
    needed = {
        16: {"vnni": [{"+avx512vnni"}], "pairs": [{"+avx512bw"}]},
        8: {
            "vnni": [{"+avxvnni"}, {"+avx512vnni", "+avx512vl"}],
            "pairs": [{"+avx2"}],
        },
    }.get(form.width, {})
    return *(kind for kind, sets in needed.items() if any(one <= have for one in sets)), "portable"


def chosen_products() -> str:
    """Return the kind of integer products that the environment selects, or else the fastest.

    Raises:
        ValueError: the processor does not have that kind, or there is none of that name.
    """
    kinds = products_of(FORM, cpu_features())
    name = os.environ.get(PRODUCTS_SETTING) or kinds[0]
    if name not in kinds:
        raise ValueError(
            f"{PRODUCTS_SETTING} = {name!r}: this processor has {', '.join(kinds)} in the form"
            f" {FORM.name!r}"
        )
    return name


PRODUCTS = chosen_products()
