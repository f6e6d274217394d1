"""emuchain: an emulator of FPGA clusters that train neural networks.

Every emulated FPGA is an MPI rank. The numbers are real (the network really trains), the time is virtual (the clock is
the cluster's, not the host's). The rooms, each importing only those before it:

- `emuchain.kernels`: Numba kernels on arrays, with a fixed order of accumulation
- `emuchain.comm`: virtual clocks, links, messages, and the hosts that run devices
- `emuchain.emulator`: networks, clusters, mapping, schedules, training, simulation, results, commands

In Python (docs/python.md); each name is imported at its first use:

    >>> import emuchain
    >>> emuchain.simulate("vgg16", "vc709", devices=15, samples=512).images_per_s  # doctest: +SKIP
"""

import sys

if sys.argv[:1] == ["-m"] and not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    del sys.path[0]  # of `python -m emuchain`, the current folder, in which no module of ours is

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
