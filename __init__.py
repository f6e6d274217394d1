"""emuchain: an emulator of FPGA clusters that train neural networks.

Every emulated FPGA is an MPI rank. The numbers are real (the network really trains), the time is
virtual (the clock is the cluster's, not the host's). The rooms, each importing only those before
it:

- `emuchain.kernels`: Numba kernels on arrays, with a fixed order of accumulation
- `emuchain.comm`: virtual clocks, links, messages, and the hosts that run devices
- `emuchain.emulator`: networks, clusters, mapping, schedules, training, simulation, results,
  commands

In Python (docs/python.md); each name is imported at its first use:

    >>> import emuchain
    >>> emuchain.simulate("vgg16", "vc709", devices=15, samples=512).images_per_s  # doctest: +SKIP
"""

import os
import sys


def _leave_current_folder() -> None:
    """Import nothing from the current folder, where `python -m` and relative entries of PYTHONPATH
    make Python look.

    It comes before all imports of a command; the path of a program that imports emuchain is its
    own.
    """
    if sys.argv[0] == "-m" and not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        del sys.path[0]
    named = os.environ.get("PYTHONPATH")
    if not named:
        return
    folders = named.split(os.pathsep)
    try:
        relative = {os.path.abspath(folder) for folder in folders if not os.path.isabs(folder)} - {
            *folders
        }
    except FileNotFoundError:  # the current folder is gone, and nothing can be in it
        return
    sys.path[:] = [folder for folder in sys.path if folder not in relative]


if sys.argv and os.path.basename(sys.argv[0]) in ("-m", "emuchain"):
    _leave_current_folder()

import lazy_loader  # noqa: E402 - not one of the current folder

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
