"""What a run needs of each device's memory, counted from the model's config.json and the run file: no torch, no device.

    model_file --> architecture --> activations --> trainer --+
                        |                                     +--> plan --> sentences
                        +---------> staging ----> generator --+

Everything is a count of tensors that the code makes. What no count tells (a CUDA context, NCCL's buffers, what an
allocator cannot use again) is left out, and said so: docs/memory.md.
"""
