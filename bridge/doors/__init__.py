"""The HTTP API for programs. Each endpoint authenticates with a person's token and reaches their sprite."""
