"""Sends the records of the run folder to TensorBoard, MLflow or Weights & Biases, in a process of
its own.
"""
