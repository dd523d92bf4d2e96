"""Whether episodes are lost or used twice when generators and environments fail."""
