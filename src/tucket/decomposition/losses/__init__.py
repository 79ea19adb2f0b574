"""What a decomposition lowers: one file per loss."""
