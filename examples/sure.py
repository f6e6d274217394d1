"""How sure is an answer, and which measurement would narrow it?"""

import emuchain

plan = emuchain.plan("resnet18", "u280", devices=8)
sure = emuchain.rate_range(plan)
key, share = sure.first
rate = emuchain.steady_state(plan).images_per_s
print(f"{rate:.0f} images/s as described; in 90 % of cases {sure.low:.0f} to {sure.high:.0f}")
print(f"measure {key} first: {share:.0%} of the width")

# Prints:
# 405 images/s as described; in 90 % of cases 229 to 527
# measure board.clock_mhz first: 75% of the width
