"""What sprites know, kept where their machines are not: each one's log, as it was shipped, sealed."""
