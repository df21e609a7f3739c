"""Export a workspace to one file in open formats, and create a workspace from such a file. See docs/archive.md."""
