"""INCEPTIONN (Li et al., MICRO 2018): the measures of its claims, a file for each topic."""
