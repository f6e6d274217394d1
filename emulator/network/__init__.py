"""Networks: layers and tensors, their description, the operator graph, and import from ONNX."""
