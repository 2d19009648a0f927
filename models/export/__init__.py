"""Export: ONNX graphs with the preparation inside."""
