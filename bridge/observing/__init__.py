"""What operators can see of the bridge: metrics and logs. Knows nothing above it."""
