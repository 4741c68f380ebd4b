"""Metrics of `dovetail-certificates`. The label `secret` has one value for each kept Secret."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from dovetail_certificates.pairs import Facts


class Metrics:
    """The metrics, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.renewal = Gauge(
            "dovetail_certificate_renewal_timestamp_seconds",
            "When the certificate's successor is due; it ends a month later.",
            ["secret"],
            registry=self.registry,
        )
        self.expiry = Gauge(
            "dovetail_certificate_expiry_timestamp_seconds",
            "When the certificate that is served expires.",
            ["secret"],
            registry=self.registry,
        )
        self.writes = Counter(
            "dovetail_certificate_writes",
            "Writes of a Secret: a certificate that was made, or a successor that is served from now on.",
            ["secret"],
            registry=self.registry,
        )

    def show(self, secret: str, *, facts: Facts) -> None:
        """Set the times of a Secret's certificate."""
        self.renewal.labels(secret).set(facts.renew_at.timestamp())
        self.expiry.labels(secret).set(facts.valid_until.timestamp())
