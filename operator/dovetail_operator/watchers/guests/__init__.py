"""Guests: objects of other kinds that name our queue, their GPUJobs, and the seats of their pods."""
