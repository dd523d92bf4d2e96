"""How fast a run on GPUs will be before it is started: predicted rates of both sides, and which of
them waits.

    card -----------+
    model_work -----+--> trainer ----+
    lengths --------+                +--> balance --> sentences
    assumptions ----+--> generator --+        +-----> ending (grace of the trainer's pods)

Every figure follows from the model's shape, the run file and the named assumptions. docs/memory.md
compares the result with measurements. The step that follows from the rates is simulated, as
`rollcast plan devices` does.
"""
