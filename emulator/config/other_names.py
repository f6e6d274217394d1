"""What other programs call keys of a run: who writes theirs is told the key."""

from __future__ import annotations

OTHER_NAMES = {
    **dict.fromkeys(("lr", "learningrate", "step_size"), "learning_rate"),
    **dict.fromkeys(("batch_size", "minibatch", "mini_batch", "bs"), "batch"),
    **dict.fromkeys(("micro_batch_size", "microbatch"), "micro_batch"),
    **dict.fromkeys(("gpus", "boards", "nodes", "fpgas", "num_devices", "n_devices"), "devices"),
    **dict.fromkeys(("wd", "decay"), "weight_decay"),
    **dict.fromkeys(("num_epochs", "n_epochs"), "epochs"),
    **dict.fromkeys(("dataset", "data_dir", "data_path"), "data"),
    **dict.fromkeys(("dtype", "format", "amp"), "precision"),
    **dict.fromkeys(("optim", "opt"), "optimizer"),
    **dict.fromkeys(("output", "save_to"), "out"),
    **dict.fromkeys(("board", "platform"), "cluster"),
    **dict.fromkeys(("codec", "compression"), "compress"),
    "random_seed": "seed",
}
"""Keys by these names."""

IN_CHANGES = dict.fromkeys(
    (
        *("link.bandwidth_gbps", "link.latency_ns", "board.clock_mhz", "board.dsp"),
        *("bandwidth", "bandwidth_gbps", "latency", "latency_ns", "clock", "clock_mhz"),
    ),
    "changes",
)
"""Keys of a cluster, which a run has in `changes`."""
