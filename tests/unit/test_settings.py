"""Settings: every fault at once, with a suggestion; relations are code."""

from pathlib import Path

import pytest

from cuscuta.settings import Settings, SettingsError, describe, load

KEY = "k" * 43 + "="


def faults(**env: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load({f"CUSCUTA_{name.upper()}": value for name, value in env.items()})
    return caught.value.faults


def test_defaults_are_in_order() -> None:
    assert load({}) == Settings()


def test_values_come_as_their_types() -> None:
    settings = load(
        {"CUSCUTA_SEATS": "7", "CUSCUTA_ACK_WAIT_S": "12.5", "CUSCUTA_SECRET_KEYS": f"{KEY},{KEY}", "OTHER": "x"}
    )
    assert (settings.seats, settings.ack_wait_s, settings.secret_keys) == (7, 12.5, [KEY, KEY])


def test_all_faults_at_once() -> None:
    found = faults(seets="4", seats="many", ack_wait_s="-1", log_format="xml", max_attempts="50")
    assert len(found) == 5
    assert any("CUSCUTA_SEETS: there is no such setting. Did you mean seats?" in f for f in found)
    assert any(f.startswith("CUSCUTA_SEATS ('many'): ") and "int" in f for f in found)
    assert any(f.startswith("CUSCUTA_ACK_WAIT_S ('-1'): ") for f in found)
    assert any("log_format" in f for f in found)
    assert any("max_deliver" in f and "Raise max_deliver" in f for f in found)


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({"heartbeat_s": "10", "presence_ttl_s": "10"}, "heartbeat_s"),  # FIELD 4
        ({"heartbeat_s": "4.9", "presence_ttl_s": "10", "lease_term_s": "14"}, "lease_term_s"),
        ({"item_timeout_s": "10", "ack_wait_s": "10"}, "ack_wait_s"),
        ({"item_timeout_s": "9", "lease_term_s": "12", "lease_margin_s": "1"}, "item_timeout_s"),
        ({"lease_margin_s": "10"}, "lease_margin_s"),
        ({"flush_s": "20"}, "flush_s"),
        ({"backoff_base_s": "9"}, "backoff_base_s"),
        ({"mend_after_s": "1"}, "mend_after_s"),
        ({"max_deliver": "5"}, "max_deliver"),
        ({"postgres_url": "mysql://x"}, "postgres_url"),
        ({"nats_url": "localhost:4222"}, "nats_url"),
        ({"secret_keys": "hunter2"}, "secret-key"),
    ],
)
def test_settings_that_cannot_work_together_are_refused(env: dict[str, str], named: str) -> None:
    assert any(named in fault for fault in faults(**env))


def test_a_file_is_read_and_the_environment_wins(tmp_path: Path) -> None:
    file = tmp_path / "cuscuta.toml"
    file.write_text('seats = 9\nnats_url = "nats://a:1"\n')
    settings = load({"CUSCUTA_CONFIG": str(file), "CUSCUTA_SEATS": "3"})
    assert (settings.seats, settings.nats_url) == (3, "nats://a:1")


def test_faults_of_a_file_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "cuscuta.toml"
    file.write_text("seats = \n")
    with pytest.raises(SettingsError, match="line 1"):
        load({"CUSCUTA_CONFIG": str(file)})
    file.write_text('seats = "9"\nnats_urll = "x"\n')
    with pytest.raises(SettingsError) as caught:
        load({"CUSCUTA_CONFIG": str(file)})
    assert any("Did you mean nats_url?" in f and "cuscuta.toml" in f for f in caught.value.faults)
    with pytest.raises(SettingsError, match="cannot be read"):
        load({"CUSCUTA_CONFIG": str(tmp_path / "none.toml")})


def test_missing_settings_are_all_named() -> None:
    with pytest.raises(SettingsError) as caught:
        Settings().require("postgres_url", "secret_keys", "upstream")
    assert [f.split()[0] for f in caught.value.faults] == ["postgres_url", "secret_keys", "upstream"]


def test_every_setting_is_described() -> None:
    assert set(describe()) == set(Settings.__struct_fields__)
    assert all(describe().values())


def test_there_are_no_default_credentials() -> None:
    settings = Settings()
    assert settings.secret_keys == []
    assert settings.postgres_url == ""
    assert settings.nats_password == ""


def test_the_value_of_a_secret_is_not_repeated() -> None:
    found = "".join(faults(secret_keys="hunter2", postgres_url="hunter2", seats="x", nats_password="hunter2"))
    assert "hunter2" not in found
