"""FARNN (Cho et al., IEEE TPDS 2022): the measures of its claims, a file for each topic."""
