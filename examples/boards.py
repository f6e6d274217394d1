"""How many boards does VGG-16 need for 2,000 CIFAR-10 images a second, and on which links?"""

import emuchain

for cluster in ("vc709-10g", "vc709"):
    sweep = emuchain.sweep("vgg16-cifar", cluster, devices=range(16, 65, 16), target=2000)
    row = sweep.target.row
    if row is None:
        print(f"{cluster}: none; at most {sweep.best['images_per_s']:.0f} images/s")
    else:
        print(f"{cluster}: {row['boards']} boards, {row['images_per_s']:.0f} images/s")

# Prints:
# vc709-10g: 48 boards, 2368 images/s
# vc709: 48 boards, 2421 images/s
