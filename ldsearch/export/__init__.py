"""Hands a sub-network over as an ordinary model, or as one ONNX file."""
