"""BaPipe (Zhao et al., 2020): the measures of its claims, a file for each topic."""
