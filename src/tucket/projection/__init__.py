"""The closed form: `ltr`, the search for blocks, and the choice of ranks."""
