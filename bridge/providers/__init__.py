"""Where sprites run: VMs and local processes."""

__all__ = ["bootstrap", "child", "local", "provider", "sprites"]
