"""Import conversations and notes of other programs, with one reader per file format."""
