"""Authentication: people, sessions, tokens, login links, OIDC and passkeys."""
