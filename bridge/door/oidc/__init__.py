"""People come in by their company's provider: OpenID Connect, the authorization code flow with PKCE."""
