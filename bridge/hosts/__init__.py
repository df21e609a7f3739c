"""Where sprites live: a process on this machine, or a VM at sprites.dev."""
