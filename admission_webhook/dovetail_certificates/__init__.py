"""`dovetail-certificates`: the one writer of the release's certificates: the webhook's, and an attached extender's.

A separate process, because it alone may read and write a Secret. The webhook is reachable from outside its namespace
and has no rights at all. `pairs` makes and reads certificates, `rotation` and `mutual` decide, `keeper` and `extender`
read and write through the API server.
"""
