"""Passkeys: a person proves who they are by a key that their device keeps (WebAuthn), without a link or a password."""
