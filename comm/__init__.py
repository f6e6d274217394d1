"""Virtual clocks and links, messages, and the hosts that run devices. The only room that imports mpi4py."""
