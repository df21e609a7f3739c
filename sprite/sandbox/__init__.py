"""Where the agent's programs run, and what they can reach."""
