"""The HTTP API for programs: observations, boot texts and chat completions."""

__all__ = ["bodies", "missions", "routes"]
