"""What may be written down: secrets redacted, private passages left out, long values cut. Knows only `errors`."""
