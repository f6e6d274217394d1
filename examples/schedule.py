"""Which schedule is fastest on these boards, and what do its weights cost?"""

import emuchain

KEYS = {"devices": 4, "engines": "turns", "batch": 64, "micro_batch": 8, "samples": 6400}
for schedule in ("gpipe", "1f1b-as", "1f1b-so", "zero-bubble", "pipedream"):
    run = emuchain.simulate("vgg16-cifar", "vc709", schedule=schedule, **KEYS)
    kept = max(run.plan.memory_bytes) / 2**20
    old = "old weights" if max(run.plan.stale_samples) else "the newest weights"
    print(f"{schedule}: {run.images_per_s:.0f} images/s, {kept:.0f} MiB on a board, {old}")

# Prints:
# gpipe: 151 images/s, 86 MiB on a board, the newest weights
# 1f1b-as: 151 images/s, 82 MiB on a board, the newest weights
# 1f1b-so: 152 images/s, 83 MiB on a board, the newest weights
# zero-bubble: 185 images/s, 84 MiB on a board, the newest weights
# pipedream: 208 images/s, 104 MiB on a board, old weights
