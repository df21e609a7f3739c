"""Redact secrets, drop private passages, and cut long values before text is stored."""

__all__ = ["cutting", "private_text", "redaction", "secret_formats"]
