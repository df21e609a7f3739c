"""Keep the agent out of `.os/`: a sandbox that hides it, and checks of paths."""
