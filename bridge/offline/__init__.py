"""The built-in stand-in for the Messages API: rules instead of a model, and scripts for tests."""
