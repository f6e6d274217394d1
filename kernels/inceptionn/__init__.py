"""The INCEPTIONN codec (Li et al., MICRO 2018, section V), in vectors, and as the paper's engines in plain Python."""
