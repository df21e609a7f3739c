"""Watching and steering a bridge: its control socket, its commands, status, metrics, logs."""
