"""The wire, version 1: what may be said, and the bytes it travels as. The bridge imports it too."""
