"""Whether a session has read untrusted content, and what it may then do without a question.

The label is derived in code from the log, the change sets and the egress proxy's connections, never from the model.
"""

__all__ = ["outside", "session"]
