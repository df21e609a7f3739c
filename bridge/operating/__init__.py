"""Monitoring and administration of a bridge: its control socket, commands, status, metrics and logs."""
