"""Provenance: who said what a learning or a line claims."""
