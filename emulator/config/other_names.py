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
    **dict.fromkeys(("grad_clip", "clip", "max_grad_norm", "gradient_clip"), "clip_norm"),
    **dict.fromkeys(("weights", "pretrained", "load", "state_dict"), "init"),
    **dict.fromkeys(("scheduler", "lr_scheduler"), "lr_schedule"),
    **dict.fromkeys(("warmup", "warmup_steps"), "lr_warm_up"),
    **dict.fromkeys(("val_split", "validation_split"), "test_share"),
    **dict.fromkeys(("train_samples", "num_samples"), "samples"),
    **dict.fromkeys(("save", "save_path"), "out"),
    **dict.fromkeys(("dp", "data_parallel"), "replicas"),
    **dict.fromkeys(("pp", "pipeline_parallel", "tp", "tensor_parallel"), "devices"),
    **dict.fromkeys(("criterion", "loss_fn", "loss_function"), "loss"),
    "random_seed": "seed",
}
"""Keys by these names."""

OTHER_VALUES = {
    **dict.fromkeys(("cross_entropy", "cross-entropy", "crossentropy", "ce"), "softmax"),
    **dict.fromkeys(("CrossEntropyLoss", "nll", "categorical_crossentropy"), "softmax"),
    **dict.fromkeys(("MSELoss", "l2", "mean_squared_error"), "mse"),
    **dict.fromkeys(("BCELoss", "BCEWithLogitsLoss", "binary_crossentropy"), "bce"),
}
"""Losses by the names that they have elsewhere."""

IN_CHANGES = dict.fromkeys(
    (
        *("link.bandwidth_gbps", "link.latency_ns", "board.clock_mhz", "board.dsp"),
        *("bandwidth", "bandwidth_gbps", "latency", "latency_ns", "clock", "clock_mhz"),
    ),
    "changes",
)
"""Keys of a cluster, which a run has in `changes`."""

ELSEWHERE = {
    **dict.fromkeys(
        ("dropout", "dropout_rate", "drop_rate"),
        'dropout stands in the network\'s file: { type = "dropout", rate = 0.1 }',
    ),
    **dict.fromkeys(
        ("steps", "max_steps", "num_steps"),
        "a run has `epochs` of `samples`, in steps of `batch`",
    ),
    **dict.fromkeys(
        ("gpu", "cuda", "accelerator"),
        "networks are trained on the processor; `devices` is the number of boards that are emulated",
    ),
    **dict.fromkeys(
        ("workers", "num_workers", "ranks", "processes", "np"),
        "`mpiexec -n 4 emuchain train` has four processes",
    ),
    "n": "`mpiexec -n 4 emuchain train` has four processes",
    "shuffle": "each epoch has another order of samples, drawn by `seed`",
    **dict.fromkeys(("fp16", "half", "mixed_precision"), "give `precision` = fp16"),
    "bf16": "give `precision` = bf16",
    **dict.fromkeys(("verbose", "v", "quiet"), "`progress` and `log` say what a run tells"),
    **dict.fromkeys(
        (
            *("validation_data", "val_data", "eval_data", "test_data"),
            *("test", "val", "validation", "eval_dataset"),
        ),
        "`test_share` of `data` tests; in Python, `emuchain.as_data(train, test)` has both",
    ),
    **dict.fromkeys(
        ("ignore_index", "ignored", "ignore_label"),
        "a target below 0, such as -100, is none; give such to those that are left out",
    ),
    "callbacks": "`on_step` and `on_epoch` are called",
    **dict.fromkeys(
        ("layers", "layer"), "a file with `layers` is a network's, and is given as `network`"
    ),
    **dict.fromkeys(("links", "machine"), "the file is a cluster's; give it as `cluster`"),
    **dict.fromkeys(
        ("hidden", "hidden_size", "num_layers", "num_classes", "classes"),
        "layers and their sizes stand in the network's file",
    ),
}
"""What is no key of a run, with where or how it is said."""
