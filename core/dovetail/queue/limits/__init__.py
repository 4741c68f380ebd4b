"""Who may have how much: quotas, fair share, priorities, pools. Pure."""
