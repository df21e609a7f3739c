"""Operators: the control socket, their page and the audit log."""

__all__ = ["audit", "company", "control", "operator_actions", "operator_api", "operator_page", "status"]
