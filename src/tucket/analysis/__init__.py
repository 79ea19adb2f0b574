"""What people do with a model: how well it predicts what it has not seen."""
