"""The layers between convolutions: bias, ReLU, pooling, normalisation, dropout; the loss and
SGD.
"""
