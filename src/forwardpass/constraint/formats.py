"""Formats that can be asserted, each as a pattern no wider than its standard.

Asserted only where `x-assert-format` asks for it; else `format` is an annotation.
"""

from __future__ import annotations

_DAY = "(0[1-9]|1[0-9]|2[0-8])"
_LEAP = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
_DATE = (
    f"([0-9]{{4}}-((0[1-9]|1[0-2])-{_DAY}|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
    f"|{_LEAP}-02-29)"
)
_TIME = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = f"{_BYTE}(\\.{_BYTE}){{3}}"
_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = f"{_LABEL}(\\.{_LABEL}){{0,3}}"
_GROUP = "[0-9A-Fa-f]{1,4}"
_ATOM = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_URI_CHAR = "([A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})"


def _ipv6() -> str:
    forms = [f"({_GROUP}:){{7}}{_GROUP}", "::"]
    for left in range(8):
        right = 7 - left
        head = f"({_GROUP}:){{1,{left}}}" if left else ":"
        tail = f"(:{_GROUP}){{1,{right}}}" if left else f"(:{_GROUP}){{1,7}}"
        if left and right:
            forms.append(f"({_GROUP}:){{{left}}}(:{_GROUP}){{1,{right}}}")
        elif not left:
            forms.append(head + tail)
        forms.append(f"({_GROUP}:){{{left}}}:" if left else "::")
    return "|".join(f"({form})" for form in dict.fromkeys(forms))


PATTERNS = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}T{_TIME}$",
    "duration": "^P([0-9]+W|([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)"
    "(T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S))?"
    "|T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S))$",
    "uuid": "^[0-9A-Fa-f]{8}-([0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}$",
    "ipv4": f"^{_IPV4}$",
    "ipv6": f"^({_ipv6()})$",
    "hostname": f"^{_HOST}$",
    "email": f"^{_ATOM}(\\.{_ATOM}){{0,3}}@{_HOST}$",
    "uri": f"^[A-Za-z][A-Za-z0-9+.-]*://{_HOST}(:[0-9]{{1,5}})?(/{_URI_CHAR}*)?"
    f"(\\?({_URI_CHAR}|\\?)*)?(#({_URI_CHAR}|\\?)*)?$",
    "json-pointer": "^(/([^/~]|~[01])*)*$",
}
