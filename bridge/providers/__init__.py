"""Where sprites run: VMs and local processes."""
