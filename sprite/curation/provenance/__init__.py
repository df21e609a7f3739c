"""Provenance: who said what a learning or a line claims."""

__all__ = ["checks", "evidence", "kinds"]
