"""`dovetail observe`: a look at a cluster that any scheduler runs. It only lists; nothing is installed or written."""
