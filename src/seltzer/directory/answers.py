"""What a server's refusal means: the kind of error, and a line that says what to do."""

from __future__ import annotations

import re
import ssl

from .errors import DirectoryError, Incomplete, Misconfigured, Refused, Unreachable
from .messages import Result

SUCCESS = 0

_MEANINGS: dict[int, tuple[type[DirectoryError], str]] = {
    1: (Refused, "it failed, or requires a login: check that bindSecret is set"),
    3: (Incomplete, "its time limit ended the search: narrow the filters or the bases, or raise the limit there"),
    4: (
        Incomplete,
        "its size limit cut the answer: raise the limit for the account of bindSecret there (also the one for paged "
        "results), or narrow the filters or the bases",
    ),
    7: (Misconfigured, "it doesn't accept a DN with a password: it has to allow simple binds over TLS"),
    8: (Misconfigured, "it wants a login or encryption: set bindSecret, and use an ldaps:// URI or startTLS"),
    11: (
        Incomplete,
        "its administrative limit cut the answer: raise the limit for the account of bindSecret there, or narrow the "
        "filters or the bases",
    ),
    13: (Misconfigured, "it wants an encrypted connection: use an ldaps:// URI, or set startTLS to true"),
    32: (Misconfigured, "there is no entry {base}, or the account of bindSecret can't see it: correct the base DN"),
    34: (Misconfigured, "it can't read the DN {base}: correct it"),
    48: (Refused, "it doesn't accept anonymous clients: set bindSecret"),
    49: (Refused, "it doesn't accept the DN and password: correct the Secret that bindSecret names"),
    50: (Refused, "the account of bindSecret may not read {base}: give it the right to, or bind as another one"),
    51: (Unreachable, "it is busy: no action needed, Seltzer tries again"),
    52: (Unreachable, "it is shutting down or out of service: no action needed, Seltzer tries again"),
    53: (Refused, "it is unwilling to answer: look for the account of bindSecret in its log"),
}
_REFERRAL = 10

# Active Directory says why an account can't bind in its own numbers.
_ACCOUNT = {
    "525": "there is no such account",
    "52e": "the password is wrong",
    "530": "the account may not log in at this time",
    "531": "the account may not log in from here",
    "532": "the account's password has expired",
    "533": "the account is disabled",
    "701": "the account has expired",
    "773": "the account has to change its password first",
    "775": "the account is locked",
}

_NO_SUCH_HOST, _NO_SUCH_ADDRESS, _EXPIRED, _NOT_YET_VALID = 62, 64, 10, 9


def refusal(server: str, result: Result, base: str) -> DirectoryError:
    """The error for a result that isn't a success; `base` is what was searched or who asked."""
    if result.code == _REFERRAL:
        return referral(server, base, result.referrals)
    kind, advice = _MEANINGS.get(result.code, (Unreachable, "this code has no known remedy; Seltzer tries again"))
    found = re.search(r"\bdata ([0-9a-f]{3})\b", result.text)
    own = _ACCOUNT.get(found[1]) if found else None
    said = own or (f"{result.text[:200]} ({result.code})" if result.text else f"LDAP result {result.code}")
    return kind(f"{server} says: {said}: {advice.format(base=base or 'at the root')}")


def referral(server: str, base: str, uris: tuple[str, ...]) -> DirectoryError:
    """The error for an answer of which a part is elsewhere: following it would send the password there."""
    where = f" ({', '.join(uris)[:200]})" if uris else ""
    return Incomplete(
        f"{server} has only a part of {base or 'the tree'} and refers to another server{where}: use the URI of a "
        "server that has all of it, or a base DN that leaves that part out"
    )


def untrusted(server: str, host: str, error: ssl.SSLError) -> DirectoryError:
    """The error for a TLS connection that didn't come about."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        return Unreachable(
            f"{server} doesn't speak TLS as expected ({reason}): check the port, and that ldaps:// is for TLS from the "
            "first byte and ldap:// for StartTLS"
        )
    match error.verify_code:
        case code if code in (_NO_SUCH_HOST, _NO_SUCH_ADDRESS):
            advice = f"its certificate is for another name than {host}: use the name in the certificate as the URI"
        case code if code == _EXPIRED:
            advice = "its certificate has expired: renew it there"
        case code if code == _NOT_YET_VALID:
            advice = "its certificate isn't valid yet: check the clocks"
        case _:
            advice = (
                f"its certificate isn't signed by an authority that we know ({error.verify_message}): put the "
                "certificate of its authority into caSecret or caConfigMap under the key ca.crt"
            )
    return Unreachable(f"{server} isn't trusted: {advice}")
