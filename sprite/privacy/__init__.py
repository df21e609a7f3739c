"""What may be written down: redacts secrets, leaves out private passages, cuts long values. Imports only `errors`."""
