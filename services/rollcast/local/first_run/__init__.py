"""From a model, data and a verifier to a run file: the steps of `rollcast init`."""
