"""How much memory may still be taken, by files as Linux writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from emuchain.emulator.common import InputError, check_start, free_room, host_room, process_room

GIB = 2**30
UNLIMITED = 9223372036854771712


def tree(
    folder: Path, files: dict[str, str], available_gib: float = 20, swap_gib: float = 0
) -> Path:
    """Write a system's files."""
    meminfo = f"MemTotal: 30000000 kB\nMemAvailable: {int(available_gib * 2**20)} kB\n"
    meminfo += f"SwapFree:       {int(swap_gib * 2**20)} kB\n"
    for name, content in {"proc/meminfo": meminfo, **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "35 31 0:32 {root} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"


def group(
    top: str, limit: str, usage_gib: float, cached_gib: float = 0, *, old: bool = False
) -> dict[str, str]:
    """Return the files of a control group of version 2, or of version 1."""
    used, cached = int(usage_gib * GIB), int(cached_gib * GIB)
    if old:
        stat = f"cache 1\ntotal_cache 1\ntotal_inactive_file {cached}\ntotal_active_file 0\n"
        return {
            f"{top}/memory.limit_in_bytes": limit,
            f"{top}/memory.usage_in_bytes": str(used),
            f"{top}/memory.stat": stat,
        }
    stat = f"anon 1\ninactive_file {cached // 2}\nactive_file {cached - cached // 2}\n"
    return {
        f"{top}/memory.max": f"{limit}\n",
        f"{top}/memory.current": f"{used}\n",
        f"{top}/memory.stat": stat,
    }


def test_the_machine_alone(tmp_path: Path) -> None:
    assert host_room(tree(tmp_path, {})) == (20 * GIB, "this machine has")
    assert host_room(tree(tmp_path, {}, 1.5, swap_gib=2)).free_bytes == 3.5 * GIB


@pytest.mark.parametrize(
    ("groups", "expected_gib"),
    [
        (group("sys/fs/cgroup/a/b", str(3 * GIB), 1), 2),
        (
            group("sys/fs/cgroup/a/b", str(3 * GIB), 2.5, 1.5),
            2,
        ),  # files that are cached can be dropped
        (group("sys/fs/cgroup/a/b", "max", 1), 20),
        (group("sys/fs/cgroup/a", str(4 * GIB), 1), 3),  # a group above
        (
            {
                **group("sys/fs/cgroup/a/b", str(8 * GIB), 1),
                **group("sys/fs/cgroup/a", str(4 * GIB), 3),
            },
            1,
        ),
        (group("sys/fs/cgroup/a/b", str(3 * GIB), 3.5), 0),
        (group("sys/fs/cgroup/a/c", str(3 * GIB), 1), 20),  # another one's
    ],
)
def test_control_groups_of_version_2(
    tmp_path: Path, groups: dict[str, str], expected_gib: float
) -> None:
    files = {"proc/self/mountinfo": V2, "proc/self/cgroup": "0::/a/b\n", **groups}
    found = host_room(tree(tmp_path, files))
    assert found.free_bytes == expected_gib * GIB
    assert found.limit.startswith(
        "this machine" if expected_gib == 20 else "this container (its control group)"
    )


def test_a_container_sees_its_own_group_as_the_top(tmp_path: Path) -> None:
    """Docker, with version 2 and a namespace of its own."""
    files = {
        "proc/self/mountinfo": V2,
        "proc/self/cgroup": "0::/\n",
        **group("sys/fs/cgroup", str(3 * GIB), 1),
    }
    assert host_room(tree(tmp_path, files)).free_bytes == 2 * GIB
    assert host_room(tree(tmp_path, {"proc/self/cgroup": "0::/../other\n"})).free_bytes == 2 * GIB


@pytest.mark.parametrize("root", ["/", "/docker/f0"])
def test_control_groups_of_version_1(tmp_path: Path, root: str) -> None:
    """As a machine mounts them, and as Docker does: there the mount begins at the container's own
    group.
    """
    top = "sys/fs/cgroup/memory" + ("/docker/f0" if root == "/" else "")
    files = {
        "proc/self/mountinfo": (
            "36 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n" + V1.format(root=root)
        ),
        "proc/self/cgroup": "9:name=systemd:/\n4:memory:/docker/f0\n1:cpu:/x\n0::/\n",
    }
    assert (
        host_room(tree(tmp_path, {**files, **group(top, str(UNLIMITED), 1, old=True)})).free_bytes
        == 20 * GIB
    )
    assert (
        host_room(
            tree(tmp_path, {**files, **group(top, str(3 * GIB), 2, 0.5, old=True)})
        ).free_bytes
        == 1.5 * GIB
    )


def test_limits_of_the_process(tmp_path: Path) -> None:
    status = {"proc/self/status": f"Name:\tpython\nVmSize:\t  {2**20} kB\nVmData:\t {2**19} kB\n"}
    form = "Limit    Soft Limit   Hard Limit   Units\nMax data size  {data}  unlimited bytes\n"
    form += (
        "Max resident set  unlimited unlimited bytes\nMax address space         {space}   unlimited"
        "   bytes\n"
    )
    for data, space, expected, flag in (
        ("unlimited", "unlimited", None, ""),
        ("unlimited", 3 * GIB, 2 * GIB, "-v"),
        (GIB, 3 * GIB, GIB // 2, "-d"),
    ):
        files = {**status, "proc/self/limits": form.format(data=data, space=space)}
        found = process_room(tree(tmp_path, files))
        assert (found and found.free_bytes) == expected
        assert flag in (found.limit if found else "")
        assert free_room(tmp_path).free_bytes == (expected or 20 * GIB)


def test_without_any_of_these_files(tmp_path: Path) -> None:
    assert host_room(tmp_path).free_bytes > 0
    assert process_room(tmp_path) is None


@pytest.mark.parametrize(
    ("limit", "flag", "most_mib"),
    [("Max address space", "v", 200), ("Max data size    ", "d", 100)],
)
def test_limits_that_leave_no_room_to_start_are_reported_with_what_to_do(
    tmp_path: Path, limit: str, flag: str, most_mib: int
) -> None:
    """Libraries say nothing of memory then: one cannot be found, another prints lines of its own
    and ends.
    """
    limits = (
        f"Limit           Soft Limit  Hard Limit  Units\n{limit}  {most_mib << 20}  unlimited "
        " bytes\n"
    )
    status = "Name: python\nVmSize:   51200 kB\nVmData:   51200 kB\n"
    system = tree(tmp_path, {"proc/self/limits": limits, "proc/self/status": status})
    with pytest.raises(
        InputError,
        match=rf"`ulimit -{flag}`\) {most_mib - 50}(.0)? MiB more.*`ulimit -{flag} unlim",
    ):
        check_start(system)
    ample = limits.replace(str(most_mib << 20), str(600 << 20))
    check_start(tree(tmp_path, {"proc/self/limits": ample}))
    check_start(
        tree(tmp_path, {"proc/self/limits": limits.replace(str(most_mib << 20), "unlimited")})
    )
