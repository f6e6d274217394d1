"""What holds a run back, and what would it gain from more of it?"""

import emuchain

plan = emuchain.plan("vgg16-cifar", "vc709-10g", devices=24)
state = emuchain.steady_state(plan)
print(f"{state.images_per_s:.0f} images/s; slowest: {state.bottleneck.slowest.name}")
for change in ({"board.clock_mhz": 150}, {"link.bandwidth_gbps": 20}, {"board.dsp": 5000}):
    other = emuchain.plan("vgg16-cifar", "vc709-10g", devices=24, changes=change)
    gain = emuchain.steady_state(other).images_per_s / state.images_per_s
    print(f"{change}: {gain:.2f} times as fast")

# Prints:
# 1153 images/s; slowest: EB of conv3_1[83:128] ICP on device 8
# {'board.clock_mhz': 150}: 1.45 times as fast
# {'link.bandwidth_gbps': 20}: 1.00 times as fast
# {'board.dsp': 5000}: 1.09 times as fast
