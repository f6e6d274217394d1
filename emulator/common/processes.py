"""Processes and their system, without a program that would tell."""

from __future__ import annotations


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
    """Return the system as `platform.platform` does, which runs `uname`: Linux-6.1.0-x86_64-with-glibc2.36."""
    import platform

    return "-".join([platform.system(), platform.release(), platform.machine(), "with", "".join(platform.libc_ver())])
