"""What was learned and said, found again: the boot prompt, search, and the views people get."""
