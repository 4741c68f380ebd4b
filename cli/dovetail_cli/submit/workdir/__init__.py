"""The directory in which gbatch was typed, on its way into a job's container."""
