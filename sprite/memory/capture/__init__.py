"""Every turn into the log, from the CLI's hooks and its stream."""
