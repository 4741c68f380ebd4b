"""The chart as helm renders it: what it installs, what it refuses, and that it agrees with what it was written from."""
