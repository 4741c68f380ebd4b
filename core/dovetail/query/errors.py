"""Errors of queries.

InvalidQueryError   a word of a query means nothing; the text names the field, the word, and what is allowed
NotFoundError       an object that a query names does not exist
"""


class InvalidQueryError(ValueError):
    """A word of a query means nothing."""


class NotFoundError(LookupError):
    """An object that a query names does not exist."""
