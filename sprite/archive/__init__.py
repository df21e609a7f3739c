"""A workspace as one file that anybody can open, and a workspace made of such a file again. See docs/archive.md."""
