"""The bridge: serves people and reaches their sprites, outside the VM that holds the agent."""
