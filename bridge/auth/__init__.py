"""Authentication: people, sessions, tokens, login links, OIDC and passkeys."""

__all__ = [
    "admission",
    "login",
    "oidc",
    "oidc_provider",
    "passkey_store",
    "passkeys",
    "people",
    "sealed_cookie",
    "tokens",
]
