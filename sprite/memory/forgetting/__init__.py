"""Forgetting: remove words from every store that holds them."""
