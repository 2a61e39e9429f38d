from perfgate.document.telemetry import DeviceState
from perfgate.measuring.timing.testbed import describe_testbed
from tests.fakes.device import FakeDevice


def test_describe_testbed__device_tells_its_state__observed_and_not_in_the_fingerprint() -> None:
    silent, told = FakeDevice(), FakeDevice()
    told.reported = DeviceState(temperature=48.0, clock=1.8e9, health="OK", foreign_processes=[])
    before, after = (describe_testbed(device, threads=1, cpus=[0], environ={}) for device in (silent, told))

    assert {name: text for name, text in after.observed.items() if name.startswith("device.")} == {
        "device.temperature": "48 Cel",
        "device.clock": "1.8e+09 Hz",
        "device.foreign_processes": "0 processes",
        "device.health": "OK",
    }
    assert not any(name.startswith("device.") for name in before.observed)
    assert before.fingerprint == after.fingerprint
