"""Where webhooks may go, and how they are signed."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuscuta.errors import InputError
from cuscuta.settings import Settings
from entry.destinations import check, public
from entry.webhooks import again_s, sign

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLw6f"
SIGNS = Settings(webhook_secrets=[SECRET])


def test_the_signature_is_that_of_standard_webhooks() -> None:
    """An example that Svix, who wrote the standard, publish for checking implementations."""
    body = b'{"event_type":"ping","data":{"success":true}}'
    made = sign("whsec_plJ3nmyCDGBKInavdOK15jsl", "msg_loFOjxBNrRLzqYUf", "1731705121", body)
    assert made == "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0="


def test_tries_become_rarer_and_end_after_a_day_or_when_nobody_wants_to_know() -> None:
    age, tries = 0.0, 0
    waits: list[float] = []
    while (wait := again_s("answered 500", age, 0.5)) is not None:
        waits.append(wait)
        age, tries = age + wait + 0.1, tries + 1
    assert waits == sorted(waits)
    assert waits[0] == pytest.approx(3.75)
    assert waits[-1] == pytest.approx(2_700)  # three quarters of an hour, and an hour at most
    assert 86_400 < age < 90_000
    assert 40 < tries < 60
    assert again_s("gone", 0.0, 0.5) is None


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),  # noqa: S104
        *("224.0.0.1", "255.255.255.255", "192.0.2.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1"),
        *(
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001:0:1::",
            "fec0::1",
            "::7f00:1",
            "not an address",
            "",
        ),
    ],
)
def test_no_private_address_counts_as_public(address: str) -> None:
    assert not public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_public_addresses_do(address: str) -> None:
    assert public(address)


@given(st.ip_addresses(v=4))
def test_an_address_inside_of_another_is_judged_alike(address: ipaddress.IPv4Address) -> None:
    assert public(f"::ffff:{address}") == public(str(address))
    assert not public(str(ipaddress.IPv6Address((0x64FF9B << 96) | int(address))))


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/hook",
        "ftp://example.com",
        "https://",
        "https://user:password@example.com/",
        "https://127.0.0.1/",
        "https://[::1]:8080/",
        "https://localhost/x",
        "https://api.localhost/x",
        "https://example.com:port/",
        "https://[::1",
        "https://example.com/" + "x" * 2_000,
        "https://example.com/\n",
        "javascript:alert(1)",
        "",
    ],
)
def test_a_bad_destination_is_refused_with_a_reason(url: str) -> None:
    with pytest.raises(InputError) as refused:
        check(url, SIGNS)
    assert refused.value.field == "webhook"
    assert refused.value.fix


def test_a_good_destination_is_taken_and_private_ones_where_they_are_allowed() -> None:
    check("https://example.com/hook?x=1", SIGNS)
    check("https://93.184.216.34:8443/hook", SIGNS)
    check("http://127.0.0.1:9000/hook", Settings(webhook_secrets=[SECRET], webhook_allow_private=True))
    with pytest.raises(InputError, match="signs no webhooks"):
        check("https://example.com/hook", Settings())
