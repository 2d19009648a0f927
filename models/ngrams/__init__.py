"""Text columns as numbers: a vocabulary of n-grams, linear scores over it, and both as nodes of an ONNX graph."""
