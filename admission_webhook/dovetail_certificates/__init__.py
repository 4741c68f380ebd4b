"""`dovetail-certificates`: the one writer of the webhook's certificate and of the CAs by which API servers trust it.

A process of its own, since it alone may read and write a Secret; the webhook, which strangers can reach, has no rights
at all. `pairs` makes and reads certificates, `rotation` decides, `keeper` reads and writes the API server.
"""
