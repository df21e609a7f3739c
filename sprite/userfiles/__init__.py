"""The person's files on disk: what there is, what changed since memory was told, and what a person did to them."""
