"""`dovetail observe`: a look at a cluster of any scheduler. It only lists."""
