"""Where the agent's programs run, and what they can reach."""

__all__ = ["attempts", "cli_environment", "egress", "guard", "hosts", "model_door", "places", "sandbox"]
