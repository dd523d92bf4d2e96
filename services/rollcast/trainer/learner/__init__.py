"""Work of every rank of the trainer: the model, its sharding, the update, checkpoint and export."""
