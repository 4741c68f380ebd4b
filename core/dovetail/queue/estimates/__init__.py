"""When a waiting job will start, and how sure that is. Pure; randomness is an argument."""
