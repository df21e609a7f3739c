"""Between a sprite and the people who listen to it: one link, each client caught up exactly."""
