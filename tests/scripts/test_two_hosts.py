"""`scripts/two-hosts`: what holds on one host holds on two, which are namespaces here."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest


def has_namespaces() -> bool:
    """Whether processes may get namespaces of their own here."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare", "nsenter", "setpriv"))):
        return False
    return (
        subprocess.run(
            ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "true"]
        ).returncode
        == 0
    )


pytestmark = [
    pytest.mark.each_mpi,
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.skipif(not has_namespaces(), reason="needs root, ip, and namespaces"),
]


def test_two_hosts(mpiexec: Any, run_script: Any, tmp_path: Path) -> None:
    """The bits of one host, and any rank that is killed: one line names it."""
    checks = [word for check in ("bits", "kill", "middle") for word in ("--check", check)]
    printed = run_script("two-hosts", "--mpi", mpiexec.name, *checks, cwd=tmp_path).stdout
    assert printed.count("as it should be: ") == 3
    assert printed.splitlines()[-1] == "0 not as they should be"
