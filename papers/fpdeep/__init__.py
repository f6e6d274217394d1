"""FPDeep (Wang et al., TC 2020): the measures of its claims, a file for each topic."""
