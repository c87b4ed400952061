"""Settings of a deployment under test."""

# Short, so that nothing in a test takes longer than it must; relations as in production.
QUICK = {
    "CUSCUTA_HEARTBEAT_S": "0.5",
    "CUSCUTA_PRESENCE_TTL_S": "2",
    "CUSCUTA_REAP_S": "0.5",
    "CUSCUTA_MEND_AFTER_S": "1.5",
    "CUSCUTA_ACK_WAIT_S": "3",
    "CUSCUTA_ITEM_TIMEOUT_S": "2",
    "CUSCUTA_FLUSH_S": "1",
    "CUSCUTA_LEASE_TERM_S": "6",
    "CUSCUTA_LEASE_MARGIN_S": "0.5",
    "CUSCUTA_BACKOFF_BASE_S": "0.1",
    "CUSCUTA_BACKOFF_CAP_S": "0.5",
    "CUSCUTA_TRANSIENT_RETRIES": "2",
    "CUSCUTA_THROTTLE_BASE_S": "0.2",
    "CUSCUTA_HEDGING": "false",  # so that tests can count polls; those of hedging switch it on
    "CUSCUTA_LOG_FORMAT": "json",
    "CUSCUTA_LOG_LEVEL": "debug",
}
