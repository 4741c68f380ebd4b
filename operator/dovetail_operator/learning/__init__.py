"""What past runs teach: run time, memory and utilization. Pure, in memory."""
