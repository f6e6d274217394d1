"""Zero Bubble Pipeline Parallelism (Qi et al., ICLR 2024): bubbles that its authors calculated, and
rates that they measured.
"""
