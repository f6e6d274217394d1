"""The command line: `emuchain train | simulate | show | schedule | network | compare | topology | plan |
validate | data | bench`.

Everything that is the user's to mend ends here as one line, from rank 0, and exit status 2 on every rank. Rank 0 alone
reads the arguments (`command_line.py`); the others do what it says, and import no more than that takes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from ...comm.join import launcher_rank
from ..common.errors import InputError
from .session import INPUT_STATUS, Session


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit; the console script `emuchain`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if (launcher_rank() or 0) > 0 and not os.environ.get("EMUCHAIN_DEBUG"):
        _be_silent()
    session = Session()
    try:
        if launcher_rank() is not None and session.join().rank > 0:
            session.follow(arguments)
        from .command_line import run

        session.end(run(arguments, session))
    except InputError as error:
        session.fail(f"emuchain: error: {error}", INPUT_STATUS)
    except KeyboardInterrupt:
        session.fail("emuchain: interrupted", 130)
    except Exception as error:
        session.fail_otherwise(error)


def _be_silent() -> None:
    """Only rank 0 talks."""
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - stays open until the process ends
