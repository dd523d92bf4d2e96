"""From a model, data and a verifier to a run file: what `rollcast init` looks at, writes and shows."""
