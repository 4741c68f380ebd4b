"""How hypothesis draws: the same examples each time, so that a failure is of the change at hand.

`pytest --hypothesis-profile=search` draws new ones, for whoever looks for cases that nobody has met yet.
"""

from hypothesis import settings

settings.register_profile("steady", derandomize=True)
settings.register_profile("search", derandomize=False)
settings.load_profile("steady")
