"""Authentication and authorization, and the checks around each request."""
