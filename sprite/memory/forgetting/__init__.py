"""Taking words out of everything that holds them."""
