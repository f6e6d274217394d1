"""What `simulate --json` says of a mapping: the same as `plan --json`."""

import json

import emuchain
from emuchain.emulator.run import steady_state
from emuchain.emulator.view import layout_as_json, simulation_as_json


def test_the_mapping_is_that_of_plan() -> None:
    plan = emuchain.plan("vgg16-cifar", devices=3, samples=4, batch=2)
    state = steady_state(plan)
    simulated = simulation_as_json(emuchain.simulate(plan), state, 1000)
    planned = layout_as_json(plan.layout(), state, None)
    mapping = json.loads(json.dumps(simulated))["mapping"]
    assert simulated["replicas"] == 1
    assert mapping["balanced_parameters"] == planned["balanced_parameters"]
    assert any(
        part["off_chip_channels"] for device in mapping["devices"] for part in device["slices"]
    )
    for device, other in zip(mapping["devices"], planned["devices"], strict=True):
        assert device["board"] == other["board"] == "VC709"
        for part, more in zip(device["slices"], other["slices"], strict=True):
            assert part.items() <= more.items() and part["tiles"]["fp"] >= 1
