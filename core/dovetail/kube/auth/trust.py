"""TLS of a client: which servers' certificates are trusted, the same with every Python."""

import ssl


def client_context(*, ca: str | None = None, ca_file: str | None = None) -> ssl.SSLContext:
    """A context that verifies servers by a CA as PEM or in a file, or by the system's.

    Since Python 3.13 the default refuses certificates that RFC 5280 finds incomplete, such as those of a CA without
    `keyUsage` or without the key of their authority. Go checks less: some clusters and companies have such ones, which
    kubectl accepts. Raises `OSError` and `ValueError` for a CA that cannot be used.
    """
    context = ssl.create_default_context(cadata=ca, cafile=ca_file)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
