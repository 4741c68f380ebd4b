"""When a waiting job starts, and how certain that is. Pure; randomness is an argument."""
