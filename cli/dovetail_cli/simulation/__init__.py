"""`dovetail snapshot` and `dovetail simulate`."""
