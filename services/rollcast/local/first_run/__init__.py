"""The steps of `rollcast init`, from a model, data and a verifier to a run file."""
