"""Operators: the control socket, their page and the audit log."""

__all__ = ["control", "operator_actions", "operator_api", "status"]
