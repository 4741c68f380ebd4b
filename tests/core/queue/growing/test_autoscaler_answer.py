"""What the conditions of a ProvisioningRequest mean."""

import pytest

from dovetail.api.builtin import Condition
from dovetail.queue.growing.autoscaler_answer import Answer, answer_of


def conditions(**status: str) -> list[Condition]:
    return [Condition(type=name, status=value, reason="Why", message="some\n words.") for name, value in status.items()]


@pytest.mark.parametrize(
    ("found", "answer"),
    [
        ({}, Answer()),
        ({"Accepted": "False"}, Answer()),
        ({"Accepted": "True"}, Answer(state="Accepted")),
        ({"Accepted": "True", "Provisioned": "False"}, Answer(state="Accepted")),
        ({"Accepted": "True", "Provisioned": "True"}, Answer(state="Provisioned")),
        ({"Accepted": "True", "Failed": "True"}, Answer(refusal="Failed (Why): some words")),
        ({"Provisioned": "True", "BookingExpired": "True"}, Answer(refusal="BookingExpired (Why): some words")),
        (
            {"Provisioned": "True", "BookingExpired": "True", "CapacityRevoked": "True"},
            Answer(refusal="CapacityRevoked (Why): some words"),
        ),
        ({"Novel": "True"}, Answer()),
    ],
    ids=["new", "not accepted", "accepted", "no capacity yet", "provisioned", "failed", "expired", "revoked", "novel"],
)
def test_the_conditions_of_a_request_are_one_answer(found: dict[str, str], answer: Answer) -> None:
    assert answer_of(conditions(**found)) == answer


def test_a_message_of_another_program_is_one_short_line() -> None:
    said = answer_of([Condition(type="Failed", status="True", message="x " * 5000)]).refusal
    assert said.startswith("Failed (no reason): x x")
    assert len(said) == 300
    assert said.endswith("…")
