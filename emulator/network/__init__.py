"""What is trained: layers and tensors, their description as TOML or ONNX, and the zoo."""
