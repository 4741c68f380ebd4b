"""The models that the SDK builds itself, as configured. Pure."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from dovetail.decoding import UnreadableError, convert
from dovetail.sdk.errors import InvalidError

Width = Annotated[int, Meta(ge=1, le=1 << 20)]


class MLP(msgspec.Struct, frozen=True, kw_only=True):
    """A multilayer perceptron; `hidden_units` is the width of its hidden layer, or of each in a list."""

    type: Literal["mlp"]
    input_dim: Width
    hidden_units: Width | Annotated[list[Width], Meta(max_length=64)]
    output_dim: Width

    @property
    def widths(self) -> list[int]:
        """The widths of all layers, from the input to the output."""
        hidden = self.hidden_units if isinstance(self.hidden_units, list) else [self.hidden_units]
        return [self.input_dim, *hidden, self.output_dim]


def model_of(model_config: Mapping[str, Any]) -> MLP:
    """The model of `{"type": "mlp", "input_dim": 4, "hidden_units": 16, "output_dim": 3}`. Raises `InvalidError`."""
    try:
        return convert(dict(model_config), as_type=MLP)
    except UnreadableError as error:
        message = f"model_config {dict(model_config)!r} cannot be used: {error.problem}; type mlp is known"
        raise InvalidError(message, status=422, reason="Invalid") from error
