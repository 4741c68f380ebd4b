"""Who a caller is, and what the API server lets this caller see and do."""
