"""What is run in this repository, and is not part of the package."""
