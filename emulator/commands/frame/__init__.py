"""What commands are made of, whatever they do.

`flags` and `named` are their arguments and flags: the keys of a configuration, files, ranges,
`--set`. `kernels` and `output` are how each starts, and what it prints; `session` has the ranks of
a run, and how they end together.
"""
