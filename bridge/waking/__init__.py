"""Wake sprites for due actions while no client is connected."""
