"""What is recorded and sent: the history of jobs, notifications, logs."""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, Field

from dovetail.api.gpujob import ADDRESS_PATTERN
from dovetail.config.groups import LIVE, Number, WholeNumber, choice, number

LogLevel = Literal["debug", "info", "warning", "error", "critical"]
LogFormat = Literal["auto", "json", "console"]
_DOMAIN: Final = r"^(\*\.)?([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]*[a-z0-9])?$"


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


class RecordKeys(BaseModel):
    """The keys about the history of jobs, notifications and logs."""

    history_url: str = Field(
        default="sqlite:////var/lib/dovetail/history.db",
        description="The database of the records of finished jobs; none: no history is kept. A URL with a password is "
        "refused here: it belongs in a Secret (history.secretName of the chart, or DOVETAIL_HISTORY_URL).",
        json_schema_extra={
            "unit": "URL",
            "allowed": "sqlite:///FILE, postgresql://USER:PASSWORD@HOST/DATABASE, or none",
        },
    )
    history_days: WholeNumber = number(
        400, low=1, high=36500, unit="days", description="How long records of finished jobs are kept."
    )
    samples_url: str = Field(
        default="",
        description="The database of what devices and jobs did over time, which the gateway keeps; empty: in its "
        "memory alone. A URL with a password is refused here: it belongs in a Secret (history.secretName of the "
        "chart, or DOVETAIL_SAMPLES_URL).",
        json_schema_extra={"unit": "URL", "allowed": "sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE"},
    )
    gpu_hour_prices: dict[str, Annotated[Number, Field(ge=0, le=1_000_000)]] = Field(
        default_factory=dict,
        description="What an hour of a GPU costs, by model. GET /api/v3/usage and the console's page Usage compute "
        "costs by it.",
        json_schema_extra={
            "unit": "currency per hour",
            "allowed": "a map of model names to prices",
            "entry": "a price from 0 to 1000000 (currency per hour)",
            LIVE: True,
        },
    )
    currency: str = Field(
        default="USD",
        description="The currency of gpu_hour_prices.",
        pattern=r"^[A-Z]{3}$",
        json_schema_extra={
            "unit": "ISO 4217",
            "allowed": "three capital letters such as EUR (ISO 4217)",
            LIVE: True,
        },
    )
    notify_url: str = Field(
        default="",
        description="The server for notifications about jobs (spec.notify); empty: none are sent. A URL with a "
        "password, or a webhook's with a path, is refused here: it belongs in a Secret (notify.secretName of the "
        "chart, or DOVETAIL_NOTIFY_URL).",
        json_schema_extra={"unit": "URL", "allowed": "smtp://HOST:PORT, smtps://HOST:PORT or https://HOST"},
    )
    notify_from: str = Field(
        default="dovetail@localhost",
        description="The sender's mail address.",
        pattern=ADDRESS_PATTERN,
        json_schema_extra={"unit": "mail address", "allowed": "an address such as dovetail@example.org"},
    )
    notify_domains: list[Annotated[str, Field(pattern=_DOMAIN)]] = Field(
        default_factory=list,
        description="The domains that mail may go to; *.example.org means every domain below example.org. Empty: any.",
        json_schema_extra={
            "unit": "domain",
            "allowed": "a list of domains",
            "entry": "a domain such as example.org or *.example.org, in lower case",
        },
    )
    notify_per_hour: WholeNumber = number(
        60,
        low=1,
        high=100000,
        unit="mails",
        description="How many mails the jobs of one namespace may send in an hour; the rest are dropped.",
    )
    log_level: Annotated[LogLevel, BeforeValidator(_lower)] = choice(
        "info",
        "debug",
        "info",
        "warning",
        "error",
        "critical",
        description="The lowest level that is logged.",
        live=True,
    )
    log_format: LogFormat = choice(
        "auto",
        "auto",
        "json",
        "console",
        description="One event per line; auto is console on a terminal, otherwise json.",
    )
