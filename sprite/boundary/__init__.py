"""What keeps the agent out of `.os/`: a place where it is not there, and checks of paths."""
