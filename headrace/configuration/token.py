"""Tokens of OAUTHBEARER: when a token ends, by its own word, and the callback by which librdkafka gets one.

A token that is a JWT has its end in its claims; they are read, never checked: that is the broker's to do. One that is not is used
for as long as the secret's own refresh.
"""

import base64
import binascii
import json
import logging
import time
from collections.abc import Callable

from headrace.configuration.secret import Secret
from headrace.errors import ReplicationError

_log = logging.getLogger(__name__)

#: A token whose end is not known is fetched again after so long, in seconds.
_UNKNOWN_SECONDS = 300.0
_PARTS = 3


def expires_at(token: str) -> float | None:
    """Return when a JWT ends, in seconds since 1970; None when it does not say so."""
    parts = token.split(".")
    if len(parts) != _PARTS:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (binascii.Error, ValueError, KeyError, TypeError):
        return None


def callback(token: Secret) -> Callable[[str], tuple[str, float]]:
    """Return what librdkafka calls, in a thread of its own, when it needs a token: with the token and its end."""

    def fetch(_settings: str) -> tuple[str, float]:
        try:
            text = token.reveal()
            ends = expires_at(text)
            if ends is not None and ends <= time.time():
                # One that was kept too long: the command, or whoever writes the file, has a newer one.
                token.expire()
                text = token.reveal()
                ends = expires_at(text)
        except ReplicationError as error:
            # The client asks again after ten seconds, and its connections stay meanwhile.
            _log.warning("the token for Kafka could not be had: %s. %s", error.message, error.hint)
            raise
        return text, time.time() + _UNKNOWN_SECONDS if ends is None else ends

    return fetch
