"""The built-in fake of the Messages API: rules instead of a model, and scripts for tests."""
