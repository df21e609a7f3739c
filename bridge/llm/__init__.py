"""The model proxy: whose call it is, what it may cost, and its bytes unchanged both ways."""
