"""Which subject may use how much: quotas, fair share, priorities, pools. Pure."""
