"""This machine, without a program that would tell: its system and processes, and how much memory
may still be taken.

Memory is limited by the machine, by control groups (containers), and for this process by its own
limits.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .messages import InputError
from .quantities import format_bytes

_LEAST_BYTES = {"v": 448 << 20, "d": 96 << 20}
"""What is needed to start, by the letter of `ulimit`: address space, of which libraries take most,
and data.
"""
_UNLIMITED = 1 << 60  # control groups of version 1 write a number like this where there is no limit


class Room(NamedTuple):
    """Bytes that can still be taken, and what limits them, for a line to the user."""

    free_bytes: int
    limit: str


def host_room(system: Path = Path("/")) -> Room:
    """Return what all processes here may still take together, by the files of `system`, which are
    those of Linux.

    It is the least of what the machine has available, and of what is left below the limit of this
    process's control group and of each above it. Files in the page cache can be dropped, so they do
    not count; swap space counts as room.
    """
    meminfo = _sizes(system / "proc/meminfo")
    swap = meminfo.get("SwapFree", 0)
    rooms = [Room(meminfo.get("MemAvailable", _physical_bytes()) + swap, "this machine has")]
    # The files of version 2, then of version 1, whose counts without `total_` leave out the groups
    # below a group, although its usage has them.
    for folder in _groups(system):
        for limit, usage, total in (
            ("memory.max", "memory.current", ""),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
        ):
            # Without a limit, `memory.max` says "max", which is no number.
            most = _number(folder / limit)
            if most is None or most >= _UNLIMITED:
                continue
            cached = _counts(folder / "memory.stat")
            dropped = cached.get(f"{total}inactive_file", 0) + cached.get(f"{total}active_file", 0)
            # Where memory is freed between the two reads, the cache of the first may be more than
            # all that the second finds in use.
            used = max(0, (_number(folder / usage) or 0) - dropped)
            rooms.append(Room(max(0, most - used) + swap, "this container (its control group) has"))
    return min(rooms)


def process_room(system: Path = Path("/")) -> Room | None:
    """Return what this process may still take by its own limits (`ulimit -v`, `ulimit -d`); None
    without any.
    """
    return min(_own_rooms(system).values(), default=None)


def _own_rooms(system: Path) -> dict[str, Room]:
    """Return what is left below each limit of this process, by the letter of `ulimit`."""
    own, rooms = _sizes(system / "proc/self/status"), {}
    with contextlib.suppress(OSError):
        limits = (system / "proc/self/limits").read_text()
        for name, used, flag in (("address space", "VmSize", "v"), ("data size", "VmData", "d")):
            # "unlimited" is no number, and does not match.
            most = re.search(rf"^Max {name} +(\d+) ", limits, re.MULTILINE)
            if most is not None:
                free = max(0, int(most[1]) - own.get(used, 0))
                rooms[flag] = Room(free, f"this process may take (`ulimit -{flag}`)")
    return rooms


def check_start(system: Path = Path("/")) -> None:
    """Check that limits of this process leave room for libraries, which otherwise fail in ways of
    their own.

    Raises:
        InputError: they do not.
    """
    for flag, room in _own_rooms(system).items():
        needed = _LEAST_BYTES[flag]
        if room.free_bytes < needed:
            raise InputError(
                f"not enough memory: {room.limit} {format_bytes(room.free_bytes)} more, and"
                f" emuchain needs {format_bytes(needed)} to start; raise that limit, as `ulimit"
                f" -{flag} unlimited` does"
            )


def free_room(system: Path = Path("/")) -> Room:
    """Return what this process may still take, by all limits."""
    own = process_room(system)
    return min(host_room(system), own) if own is not None else host_room(system)


def _groups(system: Path) -> Iterator[Path]:
    """Yield the folders of this process's control groups for memory, and of those above them."""
    with contextlib.suppress(OSError, ValueError):
        mounts = (system / "proc/self/mountinfo").read_text()
        for line in (system / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "" or "memory" in controllers.split(","):
                yield from _from_mount(system, mounts, controllers, path)


def _from_mount(system: Path, mounts: str, controllers: str, path: str) -> Iterator[Path]:
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, options = after.split()[:3]
        if not (
            kind == "cgroup2"
            if controllers == ""
            else kind == "cgroup" and "memory" in options.split(",")
        ):
            continue
        top = system / point.lstrip("/")
        below = (
            path.removeprefix(root.rstrip("/"))
            if (path + "/").startswith(root.rstrip("/") + "/")
            else "/"
        )
        # In a namespace of its own, a process sees groups outside of it as /..: of those, only the
        # mount is known.
        folder = top / below.strip("/") if ".." not in below.split("/") else top
        while folder != top:
            yield folder
            folder = folder.parent
        yield top


def _sizes(path: Path) -> dict[str, int]:
    """Return what a file of /proc says in kB, in bytes."""
    with contextlib.suppress(OSError):
        lines = re.findall(r"^(\w+):\s+(\d+) kB$", path.read_text(errors="replace"), re.MULTILINE)
        # The kernel writes kB, and means 1,024 bytes.
        return {name: 1024 * int(count) for name, count in lines}
    return {}


def _counts(path: Path) -> dict[str, int]:
    with contextlib.suppress(OSError):
        return {
            name: int(count)
            for name, count in re.findall(r"^(\w+) (\d+)$", path.read_text(), re.MULTILINE)
        }
    return {}


def _number(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return None


def _physical_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def parse_status(text: str) -> tuple[str, int]:
    """Return the name and the parent's PID of a process, from the text of its /proc/PID/status.

    Raises:
        ValueError: the text lacks one of them.
    """
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    try:
        return fields["Name"].strip(), int(fields["PPid"])
    except KeyError as error:
        raise ValueError(f"no {error} in a process's status") from None


def system_name() -> str:
    """Return the system as `platform.platform` does, which runs `uname`:
    Linux-6.1.0-x86_64-with-glibc2.36.
    """
    import platform

    return "-".join(
        [
            platform.system(),
            platform.release(),
            platform.machine(),
            "with",
            "".join(platform.libc_ver()),
        ]
    )


def check_torch(blame: str) -> None:
    """Check that PyTorch is installed, before what needs it imports it; `blame` begins the message.

    Raises:
        InputError: it is not.
    """
    if "torch" not in sys.modules and importlib.util.find_spec("torch") is None:
        raise InputError(f"{blame}: needs PyTorch: pip install 'emuchain[torch]'")
