"""When a client leaves a NATS server that does not serve it."""

from cuscuta.broker.deafness import PATIENCE_S, SETTLE_S, Deafness, kind

TAGS, WORK = "$JS.API.DIRECT.GET.KV_cuscuta_tags", "$JS.API.STREAM.MSG.GET.CUSCUTA_WORK"


def test_one_lost_request_is_no_reason_and_idle_time_does_not_count() -> None:
    deafness = Deafness()
    assert not deafness.unanswered(TAGS, 1_000.0, 1_002.0)
    deafness.answered(TAGS)
    assert not deafness.unanswered(TAGS, 2_000.0, 2_002.0)


def test_what_is_answered_elsewhere_hides_nothing() -> None:
    """A node in the minority answers what it knows by itself."""
    deafness = Deafness()
    assert not deafness.unanswered(TAGS, 100.0, 102.0)
    deafness.answered("$JS.API.INFO")
    deafness.answered(WORK)
    assert deafness.unanswered(TAGS, 102.5, 100.0 + PATIENCE_S)


def test_the_next_server_is_given_time() -> None:
    deafness = Deafness()
    deafness.unanswered(TAGS, 100.0, 102.0)
    assert deafness.unanswered(TAGS, 102.0, 104.0)
    assert not deafness.unanswered(TAGS, 104.0, 106.0)  # begun anew
    assert not deafness.unanswered(TAGS, 104.0, 104.0 + SETTLE_S - 0.1)
    assert deafness.unanswered(TAGS, 104.0, 104.0 + SETTLE_S)


def test_kinds_are_by_stream_or_family() -> None:
    assert kind("$KV.cuscuta_tags.a") == kind("$KV.cuscuta_tags.b") != kind("$KV.cuscuta_active.a")
    assert kind("cuscuta.chunk.x.1-2.1") == kind("cuscuta.chunk.y.1-2.1") != kind("cuscuta.admit.high.x.y")
    assert kind(TAGS) != kind(WORK)


def test_it_is_bounded() -> None:
    deafness = Deafness()
    for n in range(10_000):
        deafness.unanswered(f"$JS.API.CONSUMER.INFO.CUSCUTA_WORK.job-{n}", 0.0, 1.0)
    assert len(deafness._since) <= 256
