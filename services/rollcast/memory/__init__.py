"""The memory that a run needs on each device, counted from the model and the run file. No torch, no
device.

    model_file ----+                       +--> activations --> trainer --+
                   +--> architecture ------+                              +--> plan --> verdict
    weight_shapes -+    (a model's shape)  +--> staging ----> generator --+

Every figure is a count of tensors that the code makes. A CUDA context, NCCL's buffers and an
allocator's fragments are not counted; docs/memory.md lists them.
"""
