"""Who may come in, and what is checked around each request."""
