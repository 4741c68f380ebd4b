"""What was: jobs that have ended, what was used over time, and by whom."""
