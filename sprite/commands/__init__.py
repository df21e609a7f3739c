"""What `python -m sprite` does beside serving: each command is a composition root of its own, and a small one."""
