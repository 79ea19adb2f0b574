"""What data may come from. Here what the user gave is looked at, and refused with a clear message."""
