"""Operators: the control socket, their page and the audit log."""
