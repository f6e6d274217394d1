"""The INCEPTIONN codec in every form of the kernels, and as the paper's hardware: the same
bytes.
"""

import hashlib
import os
import subprocess
import sys
from typing import get_args

import numpy as np
import pytest
from llvmlite import binding, ir
from numpy.typing import NDArray

from emuchain.kernels import CodecError
from emuchain.kernels.form import FORMS, SETTING
from emuchain.kernels.inceptionn import (
    LONGEST,
    Limits,
    Rule,
    burst,
    compress,
    decompress,
    hardware,
    stages,
)
from emuchain.kernels.inceptionn.inceptionn import RUN
from emuchain.kernels.inceptionn.inceptionn import burst as kernels

EXPONENTS = (-127, -126, -30, -20, -16, -15, -14, -10, -8, -7, -6, -1, 0)
RULES = get_args(Rule)


def values(count: int) -> NDArray[np.float32]:
    """Gradients, numbers of all sizes, and any patterns."""
    random = np.random.Generator(np.random.Philox(key=5))
    words = random.integers(0, 1 << 32, count, dtype=np.uint32)
    some = [
        random.laplace(0, 2.0**-10, count),
        random.uniform(-1.1, 1.1, count),
        np.exp2(-random.uniform(0, 30, count)),
    ]
    columns = [*(one.astype(np.float32) for one in some), words.view(np.float32)]
    return np.stack(columns, axis=1).reshape(-1)[:count]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_hardware_gives_the_same_bytes(exponent: int, rule: Rule) -> None:
    for count in (0, 1, 7, 8, 9, 1001):
        x = values(count)
        buffer = compress(x, exponent, rule)
        wire, _ = hardware.compress(x, exponent, rule)
        assert wire == buffer.tobytes()
        back, _ = hardware.decompress(wire, count)
        assert back.tobytes() == decompress(buffer, count).tobytes()


@pytest.mark.parametrize(
    ("exponent", "rule"), [(-10, "bound"), (-15, "bound"), (-16, "bound"), (-10, "range")]
)
def test_any_number_of_values_has_the_bytes_of_its_bursts(exponent: int, rule: Rule) -> None:
    """Each burst by the hardware, alone: no loop of pairs, or in stages, leaves one out or takes
    one twice.
    """
    x, whole = values(8 * 50), b""
    for count in range(x.size):
        begin = count // 8 * 8
        if begin == count and count:
            whole += hardware.compress(x[count - 8 : count], exponent, rule)[0]
        assert (
            compress(x[:count], exponent, rule).tobytes()
            == whole + hardware.compress(x[begin:count], exponent, rule)[0]
        )


@pytest.mark.parametrize("exponent", [-10, -20])
def test_no_room_no_burst(exponent: int) -> None:
    """The kernel stops where the longest burst might not fit, writes nothing beyond, and goes on
    from there.
    """
    x, of, mark = values(8 * 60), Limits.of(exponent), 0xA5
    expected, numbers = (
        compress(x, exponent),
        (of.zero_below, of.wide_from, of.digits, of.tolerance),
    )
    for room in range(0, LONGEST * 62, 7):
        out, done = np.full(LONGEST * 64, mark, np.uint8), np.zeros(2, np.int64)
        kernels.compress(x.ctypes.data, 60, out.ctypes.data, room, numbers, done)
        size, bursts = done.tolist()
        assert bursts == 60 or room - LONGEST < size <= room
        assert (out[:size] == expected[:size]).all() and (out[room:] == mark).all()
        assert compress(x[8 * bursts :], exponent).tobytes() == expected[size:].tobytes()


@pytest.mark.parametrize("rest", [0, 3])
def test_values_that_a_sample_does_not_show(rest: int) -> None:
    """Zeros at the beginning of each run, where the sample is taken; and none there, but zeros
    elsewhere.
    """
    count = 8 * 32 * 1000
    for in_sample, elsewhere in ((0, 2), (2, 0)):
        x = np.full((32, count // 32), elsewhere, np.float32)
        x[:, : 8 * RUN] = in_sample
        x = np.append(x.reshape(-1), np.full(rest, 2, np.float32))
        buffer = compress(x, -10)
        assert buffer.nbytes == 2 * -(-x.size // 8) + 4 * np.count_nonzero(x)
        assert decompress(buffer, x.size).tobytes() == x.tobytes()
        held = buffer if buffer.base is None else buffer.base
        assert held.nbytes <= 2 * buffer.nbytes


def test_hardware_takes_a_burst_a_cycle() -> None:
    """A cycle for each burst that it takes or that it gives, whichever are more."""
    bursts = 1000
    for x, tags_and_payloads in (
        (np.zeros(8 * bursts), 16),
        (np.full(8 * bursts, 0.5), 80),
        (np.ones(8 * bursts), 272),
    ):
        wire, cycles = hardware.compress(x.astype(np.float32), -10)
        assert len(wire) == bursts * tags_and_payloads // 8
        given = -(-bursts * tags_and_payloads // 256)
        assert 0 <= cycles - max(bursts, given) <= 1
        _, back_cycles = hardware.decompress(wire, 8 * bursts)
        assert 0 <= back_cycles - max(bursts, given) <= 2


def test_hardware_refuses_bytes_that_are_cut() -> None:
    wire, _ = hardware.compress(np.ones(8, np.float32), -10)
    with pytest.raises(CodecError, match="end after 0 of 8 values"):
        hardware.decompress(wire[:-1], 8)


def test_a_burst_buffer_of_two_bursts_is_too_small_for_eight_values_of_272_bits() -> None:
    """After 24 and 14 times 272 bits a burst has 8 bits left: with the next one 264 are there, and
    272 are needed.
    """
    x = np.concatenate([[0.25], np.zeros(7), np.ones(8 * 20)]).astype(np.float32)
    wire, _ = hardware.compress(x, -10)
    free, _ = hardware.decompress(wire, x.size)
    for bits in (None, 520):
        assert hardware.decompress(wire, x.size, bits)[0].tobytes() == free.tobytes()
    with pytest.raises(CodecError, match="Burst Buffer of 512 bits is too small: it holds 264"):
        hardware.decompress(wire, x.size, 512)
    below_one = np.full(80, 0.75 + 2.0**-9, np.float32)
    wire, _ = hardware.compress(below_one, -10)
    assert (
        hardware.decompress(wire, 80, 512)[0].tolist() == hardware.decompress(wire, 80)[0].tolist()
    )


def test_shifters_join() -> None:
    assert hardware.joined(hardware.Vector(0b101, 3), hardware.Vector(0b11, 2)) == hardware.Vector(
        0b11101, 5
    )
    bytes_ = [hardware.Vector(place, 8 * (place % 3)) for place in range(8)]
    expected = b"".join(
        vector.bits.to_bytes(vector.length // 8, "little") for vector in bytes_ if vector.length
    )
    joined = hardware.shifter_tree(
        [vector if vector.length else hardware.Vector(0, 0) for vector in bytes_]
    )
    assert joined.bits.to_bytes(joined.length // 8, "little") == expected


PROGRAM = """
import hashlib, sys
import numpy as np
from emuchain.kernels.inceptionn import compress, decompress
x = np.load(sys.argv[1])
digest = hashlib.sha256()
for exponent in {exponents}:
    for rule in {rules}:
        buffer = compress(x, exponent, rule)
        digest.update(buffer.tobytes() + decompress(buffer, x.size).tobytes())
print(digest.hexdigest())
"""


def without(features: str, prefix: str) -> str:
    """Features in LLVM's notation, without some."""
    return ",".join(
        "-" + each[1:] if each[1:].startswith(prefix) else each for each in features.split(",")
    )


HOST = binding.get_host_cpu_features().flatten()
AVX2_ALONE = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": without(HOST, "avx512")}


@pytest.mark.parametrize(
    ("form", "processor"),
    [
        *((form, {}) for form in FORMS),
        pytest.param(
            "avx2",
            AVX2_ALONE,
            marks=pytest.mark.skipif("+avx512f" not in HOST.split(","), reason="is the form avx2"),
        ),
    ],
)
def test_every_form_gives_the_same_bytes(
    form: str, processor: dict[str, str], tmp_path: "os.PathLike[str]"
) -> None:
    x, path = values(20_001), os.path.join(tmp_path, "x.npy")
    np.save(path, x)
    digest = hashlib.sha256()
    for exponent in EXPONENTS:
        for rule in RULES:
            buffer = compress(x, exponent, rule)
            digest.update(buffer.tobytes() + decompress(buffer, x.size).tobytes())
    program = PROGRAM.format(exponents=EXPONENTS, rules=RULES)
    command = [sys.executable, "-c", program, path]
    environment = {**os.environ, **processor, SETTING: form}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == digest.hexdigest()


@pytest.mark.parametrize(
    ("form", "triple", "features", "expected"),
    [
        (
            "avx512",
            "x86_64-unknown-linux-gnu",
            "+sse2,+ssse3,+avx512f",
            "llvm.x86.ssse3.pshuf.b.128",
        ),
        ("neon", "aarch64-unknown-linux-gnu", "+neon", "llvm.aarch64.neon.tbl1.v16i8"),
        ("portable", "x86_64-unknown-linux-gnu", "+ssse3", None),
        ("avx2", "x86_64-unknown-linux-gnu", "+sse2,-ssse3", None),
        ("avx2", "aarch64-apple-darwin", "-neon", None),
        ("neon", "powerpc64le-unknown-linux-gnu", "+altivec", None),
    ],
)
def test_the_instruction_that_shuffles(
    form: str, triple: str, features: str, expected: str | None
) -> None:
    assert stages.shuffle_of(form, triple, features) == expected


def test_arm_has_one_instruction_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code that is emitted for aarch64 compiles: four stages, two each way."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    triple = "aarch64-unknown-linux-gnu"
    monkeypatch.setattr(stages, "SHUFFLE", stages.shuffle_of("neon", triple, "+neon"))
    module = ir.Module()
    module.triple = triple

    def is_wide(
        builder: ir.IRBuilder, values: burst.Values, _: object
    ) -> tuple[ir.Value, ir.Value]:
        return values.large, values.large

    for name, count in (("pack", 3), ("unpack", 2)):
        function = ir.Function(
            module, ir.FunctionType(ir.IntType(64), [ir.IntType(64)] * count), name
        )
        builder = ir.IRBuilder(function.append_basic_block())
        arguments = list(function.args)
        if name == "pack":
            source, out, limit = arguments
            end = burst.emit_stores(
                builder, out, *burst.emit_lanes(builder, is_wide, source, limit)
            )
        else:
            end = burst.emit_unpack(builder, *arguments)
        builder.ret(end)
    machine = binding.Target.from_triple(triple).create_target_machine(features="+neon", opt=2)
    assert machine.emit_assembly(binding.parse_assembly(str(module))).count("\ttbl\t") == 4
