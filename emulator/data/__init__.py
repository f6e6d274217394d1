"""Data sets: CIFAR-10, MNIST, and a procedurally drawn one that needs no download."""
