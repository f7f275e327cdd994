"""The certificate that a server shows: a renewed one from the next handshake on."""

from __future__ import annotations

import grpc

from verticil.shared.identity.pki import Credentials, CredentialSource


class Shown:
    """What gRPC asks before each handshake, in a thread of its own: a new certificate to show, or None for the one before."""

    def __init__(self, source: CredentialSource) -> None:
        self._source = source
        self._last = source.current()

    def __call__(self) -> grpc.ServerCertificateConfiguration | None:
        """The certificate if it is another than before."""
        now = self._source.current()
        if now is self._last:
            return None
        self._last = now
        return shown(now)


def shown(credentials: Credentials) -> grpc.ServerCertificateConfiguration:
    """Credentials as gRPC shows them."""
    return grpc.ssl_server_certificate_configuration([(credentials.key_pem, credentials.chain_pem)], credentials.ca_pem)
