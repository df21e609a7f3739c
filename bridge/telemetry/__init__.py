"""Logs, metrics and probes."""

__all__ = ["logs", "metrics"]
