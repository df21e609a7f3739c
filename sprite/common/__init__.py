"""Small parts that the sprite and the bridge share: supervised tasks, limits of new connections, known secrets."""
