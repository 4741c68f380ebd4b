"""Sign-ins in which any part is wrong, alone and together with others: accepted is what is right in each part.

One row a field of the ID token, and one a field of what the browser brings back. What differs from a right token by no
more than the allowed difference of clocks is right.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.reasons import problems as says
from dovetail_gateway.oidc import id_token
from dovetail_gateway.oidc.errors import RefusedError
from dovetail_gateway.oidc.id_token import LEEWAY_SECONDS
from dovetail_gateway.oidc.logins import LOGIN_SECONDS, Logins
from dovetail_gateway.oidc.provider import ProviderOptions, Tokens
from tests.gateway.openid import CLIENT, jwt

ISSUER: Final = "https://id.example"
NOW: Final = 1_800_000_000.0
NONCE: Final = "n" * 43
MISSING: Final = object()

# By claim: values that are right, and values that are wrong.
CLAIMS: Final[dict[str, tuple[list[Any], list[Any]]]] = {
    "iss": ([ISSUER], [MISSING, "", f"{ISSUER}/", "https://id.example.evil", "http://id.example", 7]),
    "sub": (["rita"], [MISSING, 7, None]),
    "aud": ([CLIENT, [CLIENT], ["other", CLIENT]], [MISSING, "", "other", [], ["other"], f"{CLIENT}x", 7]),
    "azp": ([MISSING, "", CLIENT], ["other", f"{CLIENT}x", 7]),
    "exp": (
        [NOW + 3600, NOW, NOW - LEEWAY_SECONDS + 1],
        [MISSING, None, NOW - LEEWAY_SECONDS, NOW - 3600, 0, "tomorrow"],
    ),
    "iat": ([MISSING, None, NOW - 3600, NOW + LEEWAY_SECONDS], [NOW + LEEWAY_SECONDS + 1, "now"]),
    "nbf": ([MISSING, None, NOW - 3600, NOW + LEEWAY_SECONDS], [NOW + LEEWAY_SECONDS + 1, NOW + 3600]),
    "nonce": ([NONCE], [MISSING, "", NONCE[1:], f"{NONCE}n", NONCE.upper(), None]),
}
ROWS: Final = [(name, value) for name, (_, wrong) in CLAIMS.items() for value in wrong]


def token(claims: dict[str, Any]) -> str:
    return jwt({name: value for name, value in claims.items() if value is not MISSING})


def is_taken(claims: dict[str, Any], *, nonce: str = NONCE, renewed: str = "") -> bool:
    try:
        id_token.check(token(claims), issuer=ISSUER, client_id=CLIENT, now=NOW, nonce=nonce, renewed=renewed)
    except RefusedError:
        return False
    return True


@pytest.mark.parametrize(
    ("name", "value"), ROWS, ids=[f"{name} {'absent' if value is MISSING else repr(value)}" for name, value in ROWS]
)
def test_an_id_token_with_one_wrong_claim_is_refused(name: str, value: Any) -> None:
    right = {each: values[0] for each, (values, _) in CLAIMS.items()}
    assert is_taken(right)
    assert not is_taken(right | {name: value})


@given(st.fixed_dictionaries({
    name: st.tuples(st.just(True), st.sampled_from(right)) | st.tuples(st.just(False), st.sampled_from(wrong))
    for name, (right, wrong) in CLAIMS.items()
}))  # fmt: skip
def test_an_id_token_is_taken_if_all_its_claims_are_right(drawn: dict[str, tuple[bool, Any]]) -> None:
    claims = {name: value for name, (_, value) in drawn.items()}
    assert is_taken(claims) == all(is_right for is_right, _ in drawn.values())


@pytest.mark.parametrize("name", CLAIMS)
def test_a_renewed_token_is_checked_as_the_first_one_but_for_the_nonce(name: str) -> None:
    right = {each: values[0] for each, (values, _) in CLAIMS.items()}
    first = token(right)
    for value in CLAIMS[name][1]:
        assert is_taken(right | {name: value}, nonce="", renewed=first) == (name == "nonce" and value is not None)
    assert not is_taken(right | {"sub": "otto"}, nonce="", renewed=first)


@dataclass
class Begun:
    """A sign-in that has begun: in which browser, and when."""

    browser: str
    at: float
    state: str = ""
    nonce: str = ""
    verifier: str = ""
    is_used: bool = False


class SignIns:
    """A gateway's sign-ins, and a provider that knows each code and its challenge."""

    def __init__(self) -> None:
        self.now = NOW
        self.begun: list[Begun] = []
        self.options = ProviderOptions(issuer=ISSUER, client_id=CLIENT, public_url="https://gpus.example")
        provider: Any = self
        self.logins = Logins(provider, clock=lambda: self.now)

    async def authorization_url(self, *, state: str, nonce: str, verifier: str) -> str:
        begun = self.begun[-1]
        begun.state, begun.nonce, begun.verifier = state, nonce, verifier
        return state

    async def exchange(self, code: str, *, verifier: str) -> Tokens:
        """A code is good once, with the verifier of its challenge (RFC 6749, 4.1.2, and RFC 7636, 4.6)."""
        found = next((each for each in self.begun if each.state == code), None)
        if found is None or found.is_used or verifier != found.verifier:
            raise RefusedError(says.SIGN_IN_REFUSED(problem="invalid_grant"))
        found.is_used = True
        claims = {"iss": ISSUER, "sub": "rita", "aud": CLIENT, "exp": self.now + 60, "nonce": found.nonce}
        return Tokens(id_token=jwt(claims))

    def begin(self, browser: str) -> None:
        self.begun.append(Begun(browser, self.now))
        asyncio.run(self.logins.begin(browser=browser))

    def finish(self, *, state: str, browser: str, code: str, error: str) -> bool:
        try:
            asyncio.run(self.logins.finish(state=state, browser=browser, code=code, error=error))
        except RefusedError:
            return False
        return True


BROWSERS: Final = ("one", "two")
NUMBERS: Final = st.integers(0, 3)
# Which sign-in the state is of, whose browser brings it, which code it brings, and how late.
ENDS: Final = st.tuples(
    NUMBERS, st.sampled_from([*BROWSERS, ""]), NUMBERS, st.sampled_from(["", "", "access_denied"]),
    st.sampled_from([0.0, 0.0, 60.0, LOGIN_SECONDS - 1, LOGIN_SECONDS]),
)  # fmt: skip


@given(st.lists(st.sampled_from(BROWSERS), min_size=4, max_size=4), st.lists(ENDS, min_size=1, max_size=6))
def test_a_sign_in_ends_with_its_own_state_browser_and_code_in_time_and_once(
    browsers: list[str], ends: list[tuple[int, str, int, str, float]]
) -> None:
    signs = SignIns()
    for browser in browsers:
        signs.begin(browser)
    for state_of, browser, code_of, error, seconds in ends:
        signs.now += seconds
        begun = signs.begun[state_of]
        # A code is used up also where its answer comes to nothing.
        is_right = begun.browser == browser and signs.now < begun.at + LOGIN_SECONDS and not error
        is_right = is_right and code_of == state_of and not begun.is_used
        code = signs.begun[code_of].state
        assert signs.finish(state=begun.state, browser=browser, code=code, error=error) == is_right


def _is_other(state: str) -> st.SearchStrategy[str]:
    """States that differ from this one in one place."""
    places = st.integers(0, len(state) - 1)
    letters = st.sampled_from("aZ0.-_=é ")
    return st.tuples(places, letters).map(lambda at: state[: at[0]] + at[1] + state[at[0] + 1 :]).filter(
        lambda other: other != state
    ) | places.map(lambda at: state[:at])  # fmt: skip


@given(st.data())
def test_a_state_that_differs_in_one_letter_ends_no_sign_in(data: st.DataObject) -> None:
    signs = SignIns()
    signs.begin("one")
    (begun,) = signs.begun
    other = data.draw(_is_other(begun.state))
    assert not signs.finish(state=other, browser="one", code=begun.state, error="")
    another = SignIns()
    another.begin("one")
    assert not signs.finish(state=another.begun[0].state, browser="one", code=begun.state, error="")
    assert signs.finish(state=begun.state, browser="one", code=begun.state, error="")
