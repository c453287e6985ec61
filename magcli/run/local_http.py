"""What servers on this machine share: names by which only its own programs ask for it."""

from urllib.parse import urlsplit

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")
"""Names of this machine by which its programs ask; a port that SSH forwards keeps them, whatever its number."""


def names_this_machine(host: str) -> bool:
    """Whether the header ``Host`` of a request names this machine.

    A page of another site that has its own name resolve to 127.0.0.1 (DNS rebinding) asks under that name.
    """
    try:
        return urlsplit(f"//{host}").hostname in LOOPBACK_NAMES
    except ValueError:
        return False
