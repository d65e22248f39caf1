"""Per-example statistics on disk: whole or measured again, never a pickle, never another sub-network's."""

import io
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from ldsearch.disk.fingerprint import digest
from ldsearch.errors import MachineError, RunError
from ldsearch.storage.sidecar import Sidecar
from ldsearch.subnet import Subnet

EXAMPLES = 41
FULL = Subnet.full(3)
VALUES = np.random.default_rng(0).random(EXAMPLES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "statistics" / "print"


def sidecar(folder: Path, *shape: int) -> Sidecar:
    return Sidecar(folder, shape or (EXAMPLES,), digest)


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def stored(folder: Path) -> Path:
    sidecar(folder).put(FULL, VALUES)
    return only_file(folder)


def as_npy(array: object) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array), allow_pickle=True)
    return buffer.getvalue()


def test_what_was_put_last_comes_back_bit_for_bit_in_another_process_too(folder: Path) -> None:
    assert sidecar(folder).get(FULL) is None
    assert not folder.parent.exists()  # looking makes nothing
    stored(folder)
    found = sidecar(folder).get(FULL)
    assert found is not None
    assert found.dtype == np.float64
    assert found.tobytes() == VALUES.tobytes()
    np.testing.assert_array_equal(np.load(only_file(folder)), VALUES)  # anyone may read it
    sidecar(folder).put(FULL, 1 - VALUES)  # the last counts
    np.testing.assert_array_equal(np.load(only_file(folder)), 1 - VALUES)
    assert only_file(folder).suffix == ".npy"


def test_a_full_folder_loses_what_was_not_asked_for_longest(folder: Path) -> None:
    size = stored(folder).stat().st_size
    small = Sidecar(folder, (EXAMPLES,), digest, most=6 * size)
    subnets = [FULL, *(Subnet.of_encoder(range(blocks)) for blocks in range(1, 16))]
    for subnet in subnets[1:]:
        small.put(subnet, VALUES)
        for path in folder.iterdir():  # clocks of file systems are too coarse for a test
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 10))
        assert small.get(FULL) is not None  # asked for again and again, as a frontier's is
        assert len(list(folder.iterdir())) <= 6
        assert small.get(subnet) is not None
    assert small.get(subnets[1]) is None
    Sidecar(folder, (EXAMPLES,), digest, most=2 * size).put(FULL, VALUES)  # of an earlier process
    assert len(list(folder.iterdir())) <= 2


def test_a_damaged_header_is_measured_again_and_never_an_error(folder: Path) -> None:
    path, draw, refused = stored(folder), np.random.default_rng(0), 0
    for _ in range(400):
        damaged = bytearray(WHOLE)
        for place in draw.integers(0, 128, draw.integers(1, 6)):
            damaged[place] = draw.integers(0, 256)
        path.write_bytes(bytes(damaged))
        found = sidecar(folder).get(FULL)
        refused += found is None
        assert found is None or found.shape == (EXAMPLES,)
    assert refused > 350


ZIP = io.BytesIO()
with zipfile.ZipFile(ZIP, "w") as archive:
    archive.writestr("statistics.npy", as_npy(VALUES))
WHOLE = as_npy(VALUES)
OTHERS = {
    "zeros": bytes(456),
    "one too few": as_npy(VALUES[:-1]),
    "one too many": as_npy(np.append(VALUES, 0.0)),
    "two axes": as_npy(VALUES[:, None]),
    "no axis": as_npy(0.5),
    "single precision": as_npy(VALUES.astype(np.float32)),
    "bool": as_npy(VALUES > 0.5),
    "no numbers": as_npy(VALUES * np.nan),
    "zip": ZIP.getvalue(),
    **{f"cut at {n}": WHOLE[:n] for n in (*range(0, 130, 3), *range(130, 456, 13), len(WHOLE) - 1)},
}


def test_what_is_not_one_number_per_example_is_measured_again(folder: Path) -> None:
    path = stored(folder)
    assert path.read_bytes() == WHOLE
    for kind, content in OTHERS.items():
        path.write_bytes(content)
        assert sidecar(folder).get(FULL) is None, kind
        sidecar(folder).put(FULL, VALUES)
        assert sidecar(folder).get(FULL) is not None, kind


@pytest.mark.parametrize("order", ["C", "F"])
def test_statistics_of_several_parts_come_back_whatever_their_layout(folder: Path, order: str) -> None:
    values = np.array(np.random.default_rng(1).random((EXAMPLES, 3)), order=order)
    sidecar(folder, EXAMPLES, 3).put(FULL, values)
    found = sidecar(folder, EXAMPLES, 3).get(FULL)
    assert found is not None
    np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(np.load(only_file(folder)), values)
    for shape in ((EXAMPLES, 2), (3, EXAMPLES), (EXAMPLES * 3,)):
        assert sidecar(folder, *shape).get(FULL) is None, shape


def test_statistics_of_another_shape_are_refused_rather_than_lost(folder: Path) -> None:
    for values in (VALUES[:-1], VALUES[:, None], np.float64(1.0)):
        with pytest.raises(ValueError, match="statistics of shape"):
            sidecar(folder).put(FULL, np.asarray(values))
    assert not folder.exists()


class Executes:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.proof),)


def test_a_pickle_is_never_executed(folder: Path, tmp_path: Path) -> None:
    path = stored(folder)
    proof = tmp_path / "proof"
    array = np.empty(EXAMPLES, dtype=object)
    array[:] = [Executes(proof)] * EXAMPLES
    as_objects = as_npy(array)
    for content in (as_objects, pickle.dumps(Executes(proof))):
        path.write_bytes(content)
        assert sidecar(folder).get(FULL) is None
        assert not proof.exists()
    np.load(io.BytesIO(as_objects), allow_pickle=True)
    assert proof.exists()  # by who trusts the file


def test_a_folder_that_cannot_be_made_is_one_line_and_looking_in_it_finds_nothing(tmp_path: Path) -> None:
    (tmp_path / "statistics").write_text("a file where the folder should lie")
    kept = sidecar(tmp_path / "statistics" / "print")
    assert kept.get(FULL) is None
    with pytest.raises(RunError, match=r"cannot write .*statistics/print/.*npy: ") as caught:
        kept.put(FULL, VALUES)
    assert "\n" not in str(caught.value)
    assert (tmp_path / "statistics").read_text() == "a file where the folder should lie"


def test_a_full_disk_is_one_line_and_leaves_what_was_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stored(folder)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MachineError, match=r"cannot write .*: No space left on device"):
        sidecar(folder).put(FULL, 1 - VALUES)
    assert only_file(folder).read_bytes() == before


def test_what_a_killed_worker_was_writing_goes_when_the_folder_is_opened(folder: Path) -> None:
    path = stored(folder)
    half = path.with_name(f".{path.name}.abcd1234")
    half.write_bytes(path.read_bytes()[:50])
    assert sidecar(folder).get(FULL) is not None
    assert [*folder.iterdir()] == [path]
