"""Other ways to train on the same boards: data, layer, model and hybrid parallelism."""
