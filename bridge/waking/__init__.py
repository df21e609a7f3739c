"""Waking sprites for what is due, while nobody looks at them."""
