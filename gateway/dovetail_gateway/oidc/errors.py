"""What can go wrong between the gateway and an OpenID provider.

SignOnError           a sign-in that does not succeed
    RefusedError      the provider refuses: another attempt with the same code or token is refused too
    AwayError         the provider does not answer, or not as expected
"""

from dovetail.api.reasons.clause import SaidError


class SignOnError(SaidError):
    """A sign-in that does not succeed."""


class RefusedError(SignOnError):
    """The provider refuses: another attempt with the same code or token is refused too."""


class AwayError(SignOnError):
    """The provider does not answer, or not as expected."""
