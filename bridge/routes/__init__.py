"""The application: routes, middleware, forwarding to the owner, and the page's files."""

__all__ = ["middleware", "owner", "routes"]
