"""The credential by which the programs of a sandbox know each other: a certificate of a CA that signs no other.

Other users of the machine reach every port of loopback. So the sandbox's servers answer only clients with this
certificate, and its clients accept only servers with it: another user's program may take a port that is free for a
moment. It is not of the control plane's CA, which also signs for nodes and for users of the API server.

    tls.crt, tls.key   the certificate, of servers at 127.0.0.1 and of clients, and its key
    ca.crt             the CA; its key exists only while `write` runs
"""

import ipaddress
import os
import ssl
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
AUTHORITY: Final = "ca.crt"
# The certificate's common name: the extender knows its client by it.
NAME: Final = "dovetail-sandbox"
_LIFETIME: Final = timedelta(days=3650)
_BACKDATED: Final = timedelta(hours=1)
_PRIVATE: Final = 0o600
_ANSWER_SECONDS: Final = 5.0


def write(folder: Path) -> None:
    """Write a new certificate, its key and its CA."""
    folder.mkdir(mode=0o700, exist_ok=True)
    authority, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    public = serialization.Encoding.PEM
    key = own.private_bytes(public, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    _write(folder / AUTHORITY, data=_authority(authority).public_bytes(public))
    _write(folder / CERTIFICATE, data=_certificate(own.public_key(), authority=authority).public_bytes(public))
    _write(folder / KEY, data=key)


def client_context(folder: Path) -> ssl.SSLContext:
    """Return the context of a client of the sandbox's servers. Raises `OSError` without a credential."""
    context = ssl.create_default_context(cafile=str(folder / AUTHORITY))
    context.load_cert_chain(folder / CERTIFICATE, folder / KEY)
    return context


def read(url: str, *, folder: Path) -> str:
    """Return what a server of the sandbox answers. Raises `OSError`."""
    with urllib.request.urlopen(url, timeout=_ANSWER_SECONDS, context=client_context(folder)) as response:
        return str(response.read().decode())


def _authority(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    return (
        _builder("dovetail-sandbox-ca", key=key.public_key(), issuer=key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _certificate(key: ec.EllipticCurvePublicKey, *, authority: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    return (
        _builder(NAME, key=key, issuer=authority.public_key())
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(_usage(signs=False), critical=True)
        .sign(authority, hashes.SHA256())
    )


def _builder(
    name: str, *, key: ec.EllipticCurvePublicKey, issuer: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name("dovetail-sandbox-ca"))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=signs, crl_sign=signs, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _write(path: Path, *, data: bytes) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE), "wb") as file:
        file.write(data)
