"""The HTTP API for programs: observations, boot texts and chat completions."""
