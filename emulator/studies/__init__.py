"""Questions asked of many runs: parallelism, topology, what-if, and the papers' claims."""
