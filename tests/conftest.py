"""How hypothesis draws: the same examples each time, so that a failure is of the change at hand.

`pytest --hypothesis-profile=search` draws new ones, for whoever looks for cases that nobody has met yet.
"""

from hypothesis import settings

# No deadline: a test never judges how fast the machine is.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("search", derandomize=False, deadline=None)
settings.load_profile("steady")
