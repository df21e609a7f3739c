"""The doors for other programs: each speaks its own HTTP, is opened by a person's token, and leads to their sprite."""
