"""Convolution: FP, EB and PG of FPDeep (sections 5.3 to 5.5), on one register-tiled micro-kernel."""
