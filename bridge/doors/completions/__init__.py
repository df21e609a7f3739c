"""`POST /v1/chat/completions` and `GET /v1/models`: the person's agent as one model, in the shapes of OpenAI's API."""
