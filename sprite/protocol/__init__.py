"""The wire protocol, version 1: messages and their encoding. The bridge imports it, too."""
