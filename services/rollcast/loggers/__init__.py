"""Tells what the run folder records to TensorBoard, MLflow or Weights & Biases, in a process of its own."""
