"""The agent: missions in, one at a time, to the SDK and the CLI behind it; events out."""
