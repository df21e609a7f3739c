"""What is written here goes into a store elsewhere, so that it outlives this machine."""
