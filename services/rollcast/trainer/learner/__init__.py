"""What every rank of the trainer does: the model, its sharding, the update, checkpoint and export."""
