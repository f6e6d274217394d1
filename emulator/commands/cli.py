"""The command line: `emuchain train | launch | simulate | sweep | timeline | show | report |
retime | study | schedule | network | explore | plan | rtl | validate | calibrate | data | bench`.

Every error that the user can correct ends here as one line, from rank 0, and exit status 2 on every
rank. Rank 0 alone reads the arguments (`command_line.py`); the others do the tasks that it sends,
and import only what these need.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from ...launch import EndRequest


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit; the console script `emuchain`.

    Arguments that are given are those of a caller, whose signals stay as they are.
    """
    end_request = EndRequest()
    if arguments is None:
        end_request.take()  # before all imports that take time, which an exception would leave half done
        arguments = sys.argv[1:]
    from ...kernels import ExtensionError, clean_environment
    from ...launch import Terminated
    from ..common import INPUT_STATUS, InputError
    from .frame import output
    from .frame.kernels import pause_collector
    from .frame.session import Session

    pause_collector()
    clean_environment()
    session = Session(end_request, arguments)
    try:
        output.check()
        with output.escaping():
            if session.follows and not os.environ.get("EMUCHAIN_DEBUG"):
                _be_silent()
            session.introduce()
            if session.follows:
                session.follow()
            from .command_line import run

            status = run(arguments, session)
            output.finish()
            session.end(status)
    except (InputError, ExtensionError) as error:
        session.fail(f"emuchain: error: {error}", INPUT_STATUS)
    except MemoryError as error:
        why = str(error) or "more was requested than is available"
        session.fail(
            f"emuchain: error: not enough memory: {why}; take fewer samples, or a smaller batch",
            INPUT_STATUS,
        )
    except KeyboardInterrupt:
        session.fail("emuchain: interrupted", 130)
    except Terminated as ended:
        session.terminate(ended)
    except (Exception, SystemExit) as error:
        if getattr(error, "errno", None) == errno.ENOMEM:
            session.fail(
                "emuchain: error: not enough memory: the system gives no more; see `ulimit -a`",
                INPUT_STATUS,
            )
        unwritten = output.failure(error)
        if unwritten is not None:
            session.fail(*unwritten)
        if isinstance(error, SystemExit):
            raise
        session.fail_otherwise(error)


def _be_silent() -> None:
    """Discard all output of this rank: only rank 0 prints."""
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - stays open until the process ends
