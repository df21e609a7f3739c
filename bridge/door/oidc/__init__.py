"""Single sign-on with a company's provider: OpenID Connect, authorization code flow with PKCE."""
