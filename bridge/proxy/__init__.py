"""The model proxy: model calls, budgets and the ledger."""

__all__ = ["accounts", "body", "budgets", "calls", "proxy", "sprite_tokens", "upstream"]
