"""The operations of networks: each file is one, with its keys, shapes, parameters, row maps and its
form in ONNX.
"""
