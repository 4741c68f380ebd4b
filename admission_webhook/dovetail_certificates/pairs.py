"""A certificate, its key and its CA: create, read and check them. No I/O.

PairError   the certificate, key or CA is unreadable, or they do not belong together
"""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

LIFETIME: Final = timedelta(days=90)
RENEWED_AFTER: Final = LIFETIME * 2 / 3
SERVER: Final = ExtendedKeyUsageOID.SERVER_AUTH
CLIENT: Final = ExtendedKeyUsageOID.CLIENT_AUTH
# An API server's clock may be behind ours.
BACKDATED: Final = timedelta(hours=1)
_CA_NAME: Final = "Dovetail CA"


class PairError(ValueError):
    """The certificate, key or CA is unreadable, or they do not belong together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Certificate, key and the certificate of the CA, each as PEM."""

    certificate: bytes
    key: bytes
    authority: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A certificate's names and times. `made_at` is later than `valid_from` by `BACKDATED`."""

    names: frozenset[str]
    valid_from: datetime
    valid_until: datetime

    @property
    def made_at(self) -> datetime:
        """The time at which the certificate was signed."""
        return self.valid_from + BACKDATED

    @property
    def renew_at(self) -> datetime:
        """The time at which its successor is due: after two thirds of its lifetime."""
        return self.made_at + (self.valid_until - self.made_at) * 2 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A CA with its private key, each as PEM."""

    certificate: bytes
    key: bytes


def make_authority(*, now: datetime, lifetime: timedelta) -> Authority:
    """Create a CA that signs certificates, but no other CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _common_name(f"{_CA_NAME} {now:%Y-%m-%dT%H:%M:%SZ}")
    certificate = (
        _unsigned(name, issuer=name, key=key.public_key(), now=now, lifetime=lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate=_pem(certificate), key=_key_pem(key))


def sign(
    names: Sequence[str],
    *,
    authority: Authority,
    now: datetime,
    lifetime: timedelta = LIFETIME,
    use: ObjectIdentifier = SERVER,
) -> Pair:
    """Create a certificate for these DNS names and IP addresses. Raises `PairError` if the CA is unreadable."""
    issuer, issuer_key = _read_authority(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _unsigned(_common_name("dovetail"), issuer=issuer.subject, key=key.public_key(), now=now, lifetime=lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(each) for each in names]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return Pair(certificate=_pem(certificate), key=_key_pem(key), authority=authority.certificate)


def life_of(authority: Authority) -> Facts:
    """The times of a CA. Raises `PairError` unless certificate and key are readable and belong together."""
    certificate, _ = _read_authority(authority)
    return Facts(
        names=frozenset(), valid_from=certificate.not_valid_before_utc, valid_until=certificate.not_valid_after_utc
    )


def facts_of(pair: Pair) -> Facts:
    """The names and times in the pair's certificate.

    Raises `PairError` unless key, certificate and CA are readable and belong together.
    """
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        authority = x509.load_pem_x509_certificate(pair.authority)
        key = serialization.load_pem_private_key(pair.key, password=None)
        if _public(key.public_key()) != _public(certificate.public_key()):
            raise PairError("the key is not that of the certificate")
        certificate.verify_directly_issued_by(authority)
        return Facts(
            names=_names_in(certificate),
            valid_from=certificate.not_valid_before_utc,
            valid_until=certificate.not_valid_after_utc,
        )
    except InvalidSignature as error:
        raise PairError("another CA has signed the certificate") from error
    # OpenSSL and the parsers of keys raise any of these for malformed input.
    except (ValueError, TypeError, x509.ExtensionNotFound) as error:
        raise PairError(str(error) or type(error).__name__) from error


def problem_of(pair: Pair, *, names: Iterable[str], now: datetime) -> str:
    """Why the pair cannot serve these names now; empty if it can."""
    try:
        facts = facts_of(pair)
    except PairError as error:
        return f"it cannot be read: {error}"
    if missing := sorted(set(names) - facts.names):
        return f"it does not name {', '.join(missing)}"
    if now < facts.valid_from:
        return f"it is not valid before {facts.valid_from:%Y-%m-%d %H:%M}Z: a clock has been wrong"
    if now >= facts.valid_until:
        return f"it ended at {facts.valid_until:%Y-%m-%d %H:%M}Z"
    return ""


def authorities_in(bundle: bytes, *, now: datetime) -> list[bytes]:
    """Dovetail's unexpired CAs in a bundle, as PEM, newest first; empty if it is unreadable."""
    try:
        found = x509.load_pem_x509_certificates(bundle)
    except ValueError:
        return []
    ours = [each for each in found if _is_our_authority(each) and each.not_valid_after_utc > now]
    ours.sort(key=lambda each: each.not_valid_before_utc, reverse=True)
    return [_pem(each) for each in ours]


def _read_authority(authority: Authority) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate(authority.certificate)
        key = serialization.load_pem_private_key(authority.key, password=None)
    except (ValueError, TypeError) as error:
        raise PairError(str(error) or type(error).__name__) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or _public(key.public_key()) != _public(
        certificate.public_key()
    ):
        raise PairError("the key is not that of the CA")
    return certificate, key


def _is_our_authority(certificate: x509.Certificate) -> bool:
    return any(
        str(each.value).startswith(_CA_NAME) for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    )


def _unsigned(
    subject: x509.Name, *, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    builder: x509.CertificateBuilder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )
    return builder


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _names_in(certificate: x509.Certificate) -> frozenset[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return frozenset(str(each.value) for each in names)


def _pem(certificate: x509.Certificate) -> bytes:
    pem: bytes = certificate.public_bytes(serialization.Encoding.PEM)
    return pem


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    pem: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return pem


def _public(key: PublicKeyTypes) -> bytes:
    der: bytes = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return der


def utc_now() -> datetime:
    """The current time in UTC, with its time zone."""
    return datetime.now(UTC)
