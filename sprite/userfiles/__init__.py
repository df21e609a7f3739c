"""The person's files on disk: listing, changes since memory was told, and the person's own changes."""
