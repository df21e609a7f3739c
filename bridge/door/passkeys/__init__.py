"""Passkeys: login with a key on a person's device (WebAuthn), without a link or a password."""
