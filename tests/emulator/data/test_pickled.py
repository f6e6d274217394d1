"""Hostile pickles: refused with one line, and nothing of them runs."""

import builtins
import os
import pickle
import struct
import subprocess

import numpy as np
import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.data.cifar import unpickle


class Calls:
    """Pickles as a call of `function`."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def touch(marker):
    """The commands a hostile file might run, each of which would leave `marker` behind."""
    python = f"open({str(marker)!r}, 'w').close()"
    return {
        "system": Calls(os.system, f"touch {marker}"),
        "popen": Calls(subprocess.check_call, ["touch", str(marker)]),
        "eval": Calls(eval, python),
        "exec": Calls(exec, python),
        "open": Calls(open, str(marker), "w"),
        "import": Calls(builtins.__import__, "antigravity"),
        "getattr": Calls(getattr, np.ndarray, "tofile"),
        "numpy": Calls(np.save, str(marker), 0),
        "mkdir": Calls(os.mkdir, str(marker)),
    }


@pytest.mark.parametrize("kind", touch(""))
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("nest", ["bare", "value", "list", "key", "object array", "object scalar"])
def test_nothing_runs(tmp_path, kind, protocol, nest):
    marker, path = tmp_path / "marker", tmp_path / "data_batch_1"
    bad = touch(marker)[kind]
    objects = np.empty(2, object)
    objects[0] = bad
    wrapped = {
        "bare": bad,
        "value": {b"data": bad},
        "list": {b"labels": [1, [2, (3, bad)]]},
        "key": {bad: 1},
        "object array": {b"data": objects},
        "object scalar": {
            b"data": np.array(0, dtype=np.dtype("u1", metadata={"a": bad})),
            b"b": bad,
        },
    }[nest]
    path.write_bytes(pickle.dumps(wrapped, protocol))
    with pytest.raises(InputError, match=r"data_batch_1: refused") as error:
        unpickle(path)
    assert "\n" not in str(error.value)
    assert not marker.exists()


def test_the_same_file_would_have_run(tmp_path):
    """What the tests above stand on: an ordinary `pickle.load` runs these files."""
    for kind in ("system", "popen", "eval", "exec", "open", "mkdir"):
        marker = tmp_path / kind
        pickle.loads(pickle.dumps({b"labels": [1, touch(marker)[kind]]}))
        assert marker.exists()


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (b"cos\nsystem\n(S'true'\ntR.", "os.system"),
        (b"(S'true'\nios\nsystem\n.", "INST"),
        (b"(cos\nsystem\nS'true'\no.", "os.system|OBJ"),
        (b"\x80\x02cnumpy\nndarray\n)\x81.", "NEWOBJ"),
        (b"\x80\x02\x82\x01.", "EXT1"),
        (b"Pabc\n.", "PERSID"),
        (b"\x80\x02K\x01Q.", "BINPERSID"),
        (b"\x80\x04\x8c\x05numpy\x8c\x0fndarray.__new__\x93.", "numpy.ndarray.__new__"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "os.system"),
        (b"cnumpy\nload\n.", "numpy.load"),
        (b"cnumpy.core.multiarray\nscalar\n.", "multiarray.scalar"),
        (b"cbuiltins\neval\n.", "builtins.eval"),
        (b"c__builtin__\neval\n.", "__builtin__.eval"),
        (b"cnumpy\ndtype\n(S'O'\nI0\nI1\ntR.", "dtype"),
        (b"cnumpy\ndtype\n(S'u1,O'\nI0\nI1\ntR.", "dtype"),
        (b"cnumpy\ndtype\n((lI0\nI1\ntR.", "dtype"),
        (b"cnumpy\ndtype\n(S'u1'\ntR(I3\nS'|'\nN(t(dI-1\nI-1\nI0\ntb.", "dtype with fields"),
        (b"c_codecs\nencode\n(Vx\nVzip\ntR.", "_codecs.encode"),
        (b"c_codecs\nencode\n(Vx\nVunknown_module\ntR.", "_codecs.encode"),
        (b"c_codecs\nencode\n(dS'__call__'\nNsb.", "BUILD"),
        (b"c_codecs\nencode\n(dS'a'\nI1\nsb.", "BUILD"),
        (b"cnumpy\nndarray\n(dS'a'\nI1\nsb.", "BUILD"),
        (
            b"cnumpy.core.multiarray\n_reconstruct\n(tR(I1\n(I2\ntNI0\n(ltb.",
            "an array of something other",
        ),
        (b"\x80\x02}r\xff\xff\xff\x7f.", "LONG_BINPUT"),
        (b"(dp999999999\n.", "PUT"),
        (b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"abc.", "BINBYTES8|not a whole"),
        (b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"abc.", "BYTEARRAY8|not a whole"),
    ],
)
def test_refused(tmp_path, content, names):
    path = tmp_path / "data_batch_1"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"data_batch_1: .*({names})") as error:
        unpickle(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b".",
        b"\x80\x02}",
        b"\x80\x02K\x01.",
        b"\x80\x7f}.",
        b"\x80\x02T" + struct.pack("<i", 1 << 30) + b"abc.",
        b"\x80\x02T" + struct.pack("<i", -5) + b"abc.",
        b"\x80\x04B" + struct.pack("<I", 0xFFFFFFFF) + b"abc.",
        b"\x80\x04\x95" + struct.pack("<Q", 1 << 60) + b"}.",
        b"\x80\x02h\x05.",
        b"L" + b"9" * 10000 + b"L\n.",
        b"cnumpy.core.multiarray\n_reconstruct\n(tR.",
        b"}U\x01acnumpy.core.multiarray\n_reconstruct\n(tRs.",
        b"cnumpy\nndarray\n(tR.",
        b"]" * 100_000 + b".",
    ],
)
def test_damaged(tmp_path, content):
    path = tmp_path / "data_batch_1"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"data_batch_1: not a whole CIFAR-10 pickle") as error:
        unpickle(path)
    assert "\n" not in str(error.value)


def test_array_larger_than_its_bytes(tmp_path):
    """The size of an array is that of its bytes: a shape beyond them takes no memory."""
    path = tmp_path / "data_batch_1"
    content = pickle.dumps({b"data": np.zeros((7, 9), np.uint8)}, 2)
    path.write_bytes(content.replace(b"K\x07K\x09", b"J\xff\xff\xff\x7fJ\xff\xff\xff\x7f"))
    assert path.read_bytes() != content
    with pytest.raises(InputError, match="cannot reshape"):
        unpickle(path)


def test_a_refused_file_changes_nothing_for_the_next(tmp_path):
    path = tmp_path / "data_batch_1"
    path.write_bytes(b"cnumpy.core.multiarray\n_reconstruct\n(dS'__call__'\nNsb.")
    with pytest.raises(InputError):
        unpickle(path)
    path.write_bytes(pickle.dumps({b"data": np.arange(6, dtype=np.uint8)}, 2))
    np.testing.assert_array_equal(unpickle(path)["data"], np.arange(6))
