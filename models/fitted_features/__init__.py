"""Features that the user's code fits on the training rows: their state as plain data, and their ONNX graph."""
