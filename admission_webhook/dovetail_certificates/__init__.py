"""`dovetail-certificates`: the one writer of the webhook's certificate and of its CAs.

A separate process, because it alone may read and write a Secret. The webhook is reachable from outside its namespace
and has no rights at all. `pairs` makes and reads certificates, `rotation` decides, `keeper` reads and writes through
the API server.
"""
