"""The mean utilization that jobs reach, from agents' reports. Pure, in memory."""
