# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from _helpers.pretrained import save_dinov2
from _helpers.slow import nightly_but
from PIL import Image

from genmonitor._io import no_progress
from genmonitor.cli.outputs import cut, read_images, read_outputs
from genmonitor.images.image_set import READ_BATCH


def read(where, size=None):
    return read_outputs(str(where), size, no_progress)


def lines(path, *rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_a_folder_holds_images_named_by_their_files(tmp_path):
    for name in ("b/1.png", "a.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(np.zeros((4, 5), dtype=np.uint8)).save(tmp_path / name)
    outputs = read(tmp_path)
    assert (outputs.kind, outputs.names, outputs.shape) == ("images", ["a.png", "b/1.png"], [1, 4, 5])


@pytest.mark.parametrize(("shape", "kind"), [((3, 7), "embeddings"), ((3, 7, 7), "images"), ((3, 1, 7, 7), "images")])
def test_arrays_of_two_dimensions_are_embeddings(tmp_path, shape, kind):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random(shape))
    outputs = read(tmp_path / "x.npy")
    assert (outputs.kind, len(outputs), outputs.names[2]) == (kind, 3, "row 2")
    assert (outputs.features is not None) is (kind == "embeddings")


def test_what_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"a folder of image files; .* but there is no .*nothing"):
        read(tmp_path / "nothing")


def test_embeddings_that_are_not_finite_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.full((3, 2), np.nan))
    with pytest.raises(ValueError, match=r"`embeddings of .*x.npy` to be finite, but 6"):
        read(tmp_path / "x.npy")


def test_a_file_is_not_resized(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    with pytest.raises(ValueError, match="Leave out --size"):
        read(tmp_path / "x.npy", size=4)


def test_a_table_shows_an_output_by_name_and_prompt(tmp_path):
    np.save(tmp_path / "x.npy", torch.zeros(2, 3).numpy())
    assert read(tmp_path / "x.npy").label(1, ["a", "b"]) == "row 1 (b)"


def test_a_text_cannot_move_the_cursor():
    assert cut("\x1b[2Jx", 9) == "\N{REPLACEMENT CHARACTER}[2Jx"


def save(path, values, **settings):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path, **settings)


@pytest.fixture
def pictures():
    return np.random.default_rng(0).integers(0, 256, (3, 6, 5, 3), dtype=np.uint8)


def test_folder_is_read_in_the_order_of_its_names_with_numbers_as_such(tmp_path, pictures):
    for name, picture in zip(("b/2.png", "a.png", "b/10.png"), pictures, strict=True):
        save(tmp_path / name, picture)
    (tmp_path / "notes.txt").write_text("no picture")
    images = read_images(str(tmp_path))
    assert images.dtype == torch.float32
    assert torch.equal(images, torch.from_numpy(pictures[[1, 0, 2]]).permute(0, 3, 1, 2) / 255)


def test_gray_pictures_have_one_channel_unless_some_do_not(tmp_path, pictures):
    save(tmp_path / "1.png", pictures[0, :, :, 0])
    assert read_images(str(tmp_path)).shape == (1, 1, 6, 5)
    save(tmp_path / "2.png", pictures[1])
    images = read_images(str(tmp_path))
    assert images.shape == (2, 3, 6, 5)
    assert torch.equal(images[0, 0], images[0, 2])


def test_pictures_of_several_sizes_are_refused(tmp_path, pictures):
    save(tmp_path / "1.png", pictures[0])
    save(tmp_path / "2.png", pictures[0, :4])
    with pytest.raises(ValueError, match=r"one size, but .* holds 4×5 \(2\.png\), 6×5 \(1\.png\)\. Give --size"):
        read_images(str(tmp_path))


def test_pictures_are_cut_to_squares_of_a_size(tmp_path, pictures):
    save(tmp_path / "1.png", pictures[0])
    save(tmp_path / "2.png", pictures[0, :4])
    assert read_images(str(tmp_path), size=4).shape == (2, 3, 4, 4)


def test_pictures_of_16_bits_are_refused(tmp_path):
    save(tmp_path / "1.png", np.zeros((4, 4), dtype=np.uint16))
    with pytest.raises(ValueError, match=r"8 bits per channel, but .*1.png has pillow's mode 'I"):
        read_images(str(tmp_path))


@pytest.mark.parametrize("layout", ["nchw", "nhwc", "nhw"])
def test_arrays_of_any_usual_layout_are_read(tmp_path, pictures, layout):
    values = {"nchw": pictures.transpose(0, 3, 1, 2), "nhwc": pictures, "nhw": pictures[..., 0]}[layout]
    np.save(tmp_path / "x.npy", values)
    expected = torch.from_numpy(pictures).permute(0, 3, 1, 2)[:, : 1 if layout == "nhw" else 3] / 255
    assert torch.equal(read_images(str(tmp_path / "x.npy")), expected)


def test_floating_point_is_left_as_it_is(tmp_path):
    values = torch.linspace(-1, 1, 72).view(2, 1, 6, 6)
    np.savez(tmp_path / "x.npz", images=values.numpy(), labels=np.zeros(2))
    assert torch.equal(read_images(str(tmp_path / "x.npz")), values)


def test_array_is_named_where_there_are_several(tmp_path, pictures):
    np.savez(tmp_path / "x.npz", train=pictures, val=pictures[:1])
    with pytest.raises(ValueError, match=r"one of the arrays in .*x.npz: train, val. Give it as in .*x.npz:train"):
        read_images(str(tmp_path / "x.npz"))
    with pytest.raises(ValueError, match=r"arrays in .*: train, val"):
        read_images(f"{tmp_path / 'x.npz'}:test")
    assert len(read_images(f"{tmp_path / 'x.npz'}:val")) == 1


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.uint64, np.int16, np.int64, ">u2"])
def test_integers_of_any_width_are_read_as_0_to_255(tmp_path, pictures, dtype):
    np.save(tmp_path / "x.npy", pictures.astype(dtype))
    expected = torch.from_numpy(pictures).permute(0, 3, 1, 2) / 255
    assert torch.equal(read_images(str(tmp_path / "x.npy")), expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.longdouble, ">f4"])
def test_floating_point_of_any_kind_is_read(tmp_path, dtype):
    np.save(tmp_path / "x.npy", np.full((2, 1, 4, 4), 0.5, dtype=dtype))
    assert torch.equal(read_images(str(tmp_path / "x.npy")).float(), torch.full((2, 1, 4, 4), 0.5))


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.uint64, np.int32])
def test_integers_beyond_255_are_refused(tmp_path, dtype):
    np.save(tmp_path / "x.npy", np.full((2, 1, 4, 4), 300, dtype=dtype))
    with pytest.raises(ValueError, match=r"within 0\.\.255, but .*300\. Scale them"):
        read_images(str(tmp_path / "x.npy"))


@pytest.mark.parametrize("dtype", ["bool", "complex64", "U3", "S3", "M8[s]"])
def test_arrays_of_no_real_numbers_are_refused(tmp_path, dtype):
    np.save(tmp_path / "x.npy", np.zeros((2, 1, 4, 4), dtype=dtype))
    with pytest.raises(ValueError, match=r"Expected real numbers, but .*x\.npy holds .*\. Convert them"):
        read_images(str(tmp_path / "x.npy"))


@pytest.mark.parametrize("shape", [(), (3,), (2, 1, 4, 4, 1)])
def test_arrays_of_another_shape_are_refused(tmp_path, shape):
    np.save(tmp_path / "x.npy", np.zeros(shape))
    with pytest.raises(ValueError, match=r"of shape \[N, C, H, W\]"):
        read_images(str(tmp_path / "x.npy"))


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_pixels_are_white(tmp_path, mode):
    image = Image.new("RGBA", (2, 1), (255, 255, 255, 255))
    image.putpixel((0, 0), (0, 0, 0, 0))  # black, but none of it is seen
    image.putpixel((1, 0), (0, 0, 0, 255))
    image.convert(mode).save(
        tmp_path / "1.png", **({"transparency": image.convert("P").getpixel((0, 0))} if mode == "P" else {})
    )
    images = read_images(str(tmp_path))
    assert images.shape[1] == (1 if mode == "LA" else 3)
    assert images[0, :, 0, 0].tolist() == [1.0] * images.shape[1]


def test_half_transparent_pixels_are_mixed_with_white(tmp_path):
    Image.new("RGBA", (1, 1), (255, 0, 0, 51)).save(tmp_path / "1.png")  # a fifth of red
    assert (255 * read_images(str(tmp_path))).round().flatten().tolist() == [255, 204, 204]


@pytest.mark.parametrize(("orientation", "turned"), [(1, 0), (8, 1), (3, 2), (6, 3)])
def test_pictures_are_upright_by_their_exif_orientation(tmp_path, pictures, orientation, turned):
    exif = Image.Exif()
    exif[274] = orientation
    Image.fromarray(pictures[0]).save(tmp_path / "1.png", exif=exif)
    expected = torch.from_numpy(np.rot90(pictures[0], turned).copy()).permute(2, 0, 1) / 255
    assert torch.equal(read_images(str(tmp_path))[0], expected)


@pytest.mark.parametrize("ink", [(0, 255, 255, 0), (255, 0, 0, 0), (0, 0, 0, 255), (0, 0, 0, 0)])
def test_cmyk_pictures_are_read_as_their_inks_look(tmp_path, ink):
    Image.new("CMYK", (2, 2), ink).save(tmp_path / "1.tif")
    expected = [0.0 if part or ink[3] else 1.0 for part in ink[:3]]
    assert read_images(str(tmp_path))[0, :, 0, 0].tolist() == expected


@pytest.mark.parametrize("suffix", ["gif", "png", "webp", "tif"])
def test_pictures_of_several_frames_are_refused(tmp_path, pictures, suffix):
    first, *others = (Image.fromarray(picture) for picture in pictures)
    first.save(tmp_path / f"1.{suffix}", save_all=True, append_images=others)
    with pytest.raises(ValueError, match=rf"one image per file, but .*1\.{suffix} has 3 frames"):
        read_images(str(tmp_path))


def test_camera_pictures_with_a_preview_are_read(tmp_path, pictures):
    first, second = (Image.fromarray(picture) for picture in pictures[:2])
    first.save(tmp_path / "1.jpg", format="MPO", save_all=True, append_images=[second])
    assert read_images(str(tmp_path)).shape == (1, 3, 6, 5)


@pytest.mark.parametrize("suffix", ["png", "jpg", "gif", "webp"])
def test_truncated_picture_is_named(tmp_path, suffix):
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    save(tmp_path / f"1.{suffix}", noise)
    content = (tmp_path / f"1.{suffix}").read_bytes()
    (tmp_path / f"1.{suffix}").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=rf"1\.{suffix} cannot be read as an image"):
        read_images(str(tmp_path))


def test_picture_of_too_many_pixels_is_named(tmp_path):
    Image.new("1", (20_000, 20_000)).save(tmp_path / "1.png")
    with pytest.raises(ValueError, match=r"1\.png cannot be read as an image: Image size \(400000000 pixels\) exceeds"):
        read_images(str(tmp_path))


class Trap:
    """Unpickling it would run code."""

    def __reduce__(self):
        return (exec, ("import builtins; builtins.sprung = True",))


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_nothing_is_unpickled(tmp_path, name):
    import builtins

    trap, path = np.array([Trap()], dtype=object), tmp_path / name
    if name == "x.npy":
        np.save(path, trap, allow_pickle=True)
    else:
        np.savez(path, images=trap)
    with pytest.raises(ValueError, match=r".npy or .npz file of plain numbers, but .* is not"):
        read_images(str(path))
    assert not hasattr(builtins, "sprung")


def test_read_images_refuses_a_folder_without_pictures(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"Expected image files .* under .*, but found none"):
        read_images(str(tmp_path))


@pytest.mark.parametrize("count", [3, pytest.param(2 * READ_BATCH, marks=pytest.mark.slow)])
def test_half_written_picture_among_many_is_named(tmp_path, count):
    rng = np.random.default_rng(0)
    for number in range(count):
        save(tmp_path / f"{number}.png", rng.integers(0, 256, (16, 16), dtype=np.uint8))
    images = read(tmp_path).images
    expected = torch.stack([torch.from_numpy(np.array(Image.open(tmp_path / f"{i}.png"))) for i in range(count)])
    assert torch.equal(images.read(range(count)), expected[:, None] / 255)
    (tmp_path / "2.png").write_bytes((tmp_path / "2.png").read_bytes()[:-60])
    with pytest.raises(ValueError, match=r"^\S*/2.png cannot be read as an image: .*truncated"):
        images.read(range(count))


LIMITED = """
import resource, sys
from pathlib import Path
import torch
import transformers
from genmonitor.cli import main
torch.set_num_threads(1)
used = next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmData" in line)
resource.setrlimit(resource.RLIMIT_DATA, (1024 * used + {more} * 2**20,) * 2)
sys.exit(main({words}))
"""


@pytest.fixture
def run_within(tmp_path):
    """Run a command in so many MiB beyond what is imported, by the operating system's limit; return its result."""
    if sys.platform != "linux":
        pytest.skip("limits of memory are Linux's")

    def run(more, *words):
        words = [*map(str, words), "--json", "--out", str(tmp_path / "out")]
        done = subprocess.run(
            [sys.executable, "-c", LIMITED.format(more=more, words=words)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            timeout=400,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def blocks(count, seed):
    """Images of 128×128×3 made of plain squares; in float32 5000 take 938 MiB, in 8 bits 234 MiB."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, 4, 4, 3), dtype=np.uint8).repeat(32, 1).repeat(32, 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", nightly_but(["folder", "images.npy"], "images.npy"))
def test_images_of_which_memory_holds_a_part_are_encoded(tmp_path, run_within, kind):
    place = tmp_path / kind
    if kind == "images.npy":
        np.save(place, blocks(5000, seed=0))
    else:
        for number, image in enumerate(blocks(5000, seed=0)):
            save(tmp_path / "folder" / f"{number}.png", image)
    model = save_dinov2(tmp_path / "model")
    assert run_within(850, "diversity", place, "--encoder", model)["values"]["vendi"] > 1


@pytest.mark.slow
@pytest.mark.nightly
def test_sets_of_which_memory_holds_a_part_are_compared(tmp_path, run_within):
    """10,000 images, 1.9 GiB of float32, beside 0.9 GiB for the regions, in 1.5 GiB."""
    for number, image in enumerate(blocks(5000, seed=0)):
        save(tmp_path / "real" / f"{number}.png", image)
    fake = blocks(5000, seed=1)
    fake[0] = blocks(5000, seed=0)[7]
    np.save(tmp_path / "fake.npy", fake)
    found = run_within(1500, "compare", tmp_path / "real", tmp_path / "fake.npy", "--n-samples", 90)
    assert (found["real_images"]["given"], found["n_samples"]) == (5000, 90)
    assert any("1 of 5000 generated images are among" in note for note in found["notes"])
