"""Three minutes of random faults; `make soak` takes twenty."""

import random

import pytest

from tests.conftest import MakeHouse
from tests.faults.soak import Soak
from tests.faults.stage import Stage

SECONDS = 180


@pytest.mark.timeout(900)
async def test_three_minutes_of_random_faults(make_house: MakeHouse) -> None:
    h = await make_house()
    async with Stage(h) as stage:
        await Soak(stage, random.randrange(1_000_000)).run(SECONDS, print)
