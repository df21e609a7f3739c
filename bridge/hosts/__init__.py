"""Hosts of sprites: a process on this machine, or a VM at sprites.dev."""
