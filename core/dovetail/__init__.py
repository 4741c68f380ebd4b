"""The core library: the domain, and one thin client of the API server.

It knows no deployables.
"""
