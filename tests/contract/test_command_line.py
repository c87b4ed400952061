"""The whole command line by its own description."""

from collections.abc import Iterator

import pytest
import rich_click as click

from cuscuta.cli.main import cuscuta


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from leaves(inner, (*path, name))
    else:
        yield " ".join(path), command


COMMANDS = dict(leaves(cuscuta))
NO_JSON = {"up": "runs until Ctrl-C and prints logs"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_speaks_json_and_explains_itself(name: str) -> None:
    command = COMMANDS[name]
    options = {flag for option in command.params for flag in option.opts}
    assert ("--json" in options) == (name not in NO_JSON), options
    assert command.help
    assert command.help[0].isupper()
    for option in command.params:
        if isinstance(option, click.Option) and option.name in ("password", "token"):
            assert option.hide_input, "a secret is not to be typed in the open"


def test_there_are_commands_for_everything() -> None:
    assert {"accounts add", "accounts import", "accounts list", "accounts show", "accounts rate", "accounts release",
            "accounts disable", "accounts password", "accounts remove", "jobs submit", "jobs show", "jobs list",
            "jobs watch", "jobs retry", "jobs cancel", "jobs results", "jobs graph", "doctor", "top", "events",
            "profiles add", "profiles list", "profiles remove"} <= set(COMMANDS)  # fmt: skip
