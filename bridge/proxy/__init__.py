"""The model proxy: model calls, budgets and the ledger."""
