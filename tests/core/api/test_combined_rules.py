from dovetail.api.gpujob.validation.combined import combined

WHOLE = [{"rule": "size(self.metadata.name) <= self.spec.room", "message": "the name's too long"}]
SPEC = [
    {"rule": "has(self.a) == has(oldSelf.a)", "message": "a stays"},
    {"rule": "!has(self.b) || self.b == 'x'", "message": "b must be x"},
    {"rule": "self.c > 0", "messageExpression": "self.c < 0 ? 'c is below 0' : 'c is 0'"},
]


def test_all_rules_hold_of_a_new_spec_and_of_a_changed_one() -> None:
    _, _, rest = combined(whole=WHOLE, spec=SPEC)["rule"].partition(") || [self.spec]")
    assert rest == (
        ".all(spec, [oldSelf.hasValue() ? oldSelf.value().spec : self.spec].all(old, "
        "(size(self.metadata.name) <= self.spec.room) && (has(spec.a) == has(old.a)) && "
        "(!has(spec.b) || self.spec.b == 'x') && (self.spec.c > 0)))"
    )


def test_the_answer_is_the_sentence_of_what_is_broken_and_of_a_new_job_nothing_is_compared() -> None:
    assert combined(whole=WHOLE, spec=SPEC)["messageExpression"] == (
        "!(size(self.metadata.name) <= self.spec.room) ? 'the name\\'s too long' : "
        "!(!has(self.spec.b) || self.spec.b == 'x') ? 'b must be x' : "
        "!(self.spec.c > 0) ? (self.spec.c < 0 ? 'c is below 0' : 'c is 0') : "
        "!(has(self.spec.a) == has(dyn(oldSelf).spec.a)) ? 'a stays' : ''"
    )
