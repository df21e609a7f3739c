"""`POST /v1/chat/completions` and `GET /v1/models`: the person's agent as one model of an OpenAI-compatible API."""
