"""What it is trained with: CIFAR-10, MNIST, and a procedurally drawn set that needs no download."""
