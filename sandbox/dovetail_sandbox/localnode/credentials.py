"""Certificates that the sandbox's CA signs: for the local node, its log server, and the user. No I/O but files.

A module of its own: X.509 alone, which knows no local node.
"""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME: Final = timedelta(days=3650)
_BACKDATED: Final = timedelta(hours=1)
_PRIVATE: Final = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Who a certificate is for. `address` makes it a server's."""

    user: str
    group: str = ""
    address: str = ""


def sign(subject: Subject, *, pki: Path, certificate: Path, key: Path) -> None:
    """Write a new key and its certificate, signed by the CA in `pki`."""
    private = ec.generate_private_key(ec.SECP256R1())
    # Not the CA's own certificate: kwokctl gives it the serial number 0, which cryptography is about to refuse.
    sibling = x509.load_pem_x509_certificate((pki / "admin.crt").read_bytes())
    signer = serialization.load_pem_private_key((pki / "ca.key").read_bytes(), password=None)
    assert isinstance(signer, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey)
    built = _unsigned(subject, issuer=sibling.issuer, key=private.public_key()).sign(signer, hashes.SHA256())
    certificate.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    key.touch(mode=_PRIVATE)
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


def _unsigned(subject: Subject, *, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    usage = ExtendedKeyUsageOID.SERVER_AUTH if subject.address else ExtendedKeyUsageOID.CLIENT_AUTH
    made = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    )
    if not subject.address:
        return made
    address = x509.IPAddress(ipaddress.ip_address(subject.address))
    return made.add_extension(x509.SubjectAlternativeName([address]), critical=False)


def _name(subject: Subject) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, subject.user)]
    if subject.group:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, subject.group))
    return x509.Name(parts)
