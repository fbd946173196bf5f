import csv
import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image

from clients.training.train import as_pixels
from fl_app import classify
from fl_app.cli import _parser, main
from fl_core.data.image_files import find_images
from fl_core.data.image_folder import read_image_folder
from fl_core.models.model_file import ModelCard, save_model
from tests.own_modules import own_modules
from tests.processes import ROOT


def call(*words):
    """Run the command as `fedkin classify WORDS` does."""
    options = _parser().parse_args(["classify", *map(str, words)])
    return options.call(options)


def rows_of(text):
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    assert header == ["path", "class", "probability"]
    return rows


def save(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture
def brightness(tmp_path):
    """Return a saved model for gray 2×2 images that says light when their mean is above a half.

    Logits are (0, 8·mean - 4), so the probability of light is 1 / (1 + exp(4 - 8·mean)).
    """
    return saved(tmp_path / "models/brightness.safetensors", ("dark", "light"), [0, 2], [0, -4])


def saved(path, classes, weights, bias, shape=(1, 2, 2)):
    """Save a linear model; each output has one weight, or one for each pixel."""
    rows = np.broadcast_to(np.array(weights, np.float32), (int(np.prod(shape)), len(bias))).T
    arrays = {"output.weight": np.ascontiguousarray(rows), "output.bias": np.float32(bias)}
    save_model(path, arrays, ModelCard("logistic-regression", shape, classes, "x", 0, 5))
    return path


def gray(value, height=2, width=2):
    return np.full((height, width), value, np.uint8)


@pytest.fixture
def pictures(tmp_path):
    return tmp_path / "pictures"


def colours(height, width, seed):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def spied(monkeypatch, card):
    """Replace the model that is loaded, and return the list of what it is given."""
    seen = []

    class Spy(torch.nn.Module):
        def forward(self, x):
            seen.append(x)
            return torch.zeros(len(x), len(card.class_names))

    monkeypatch.setattr(classify, "load_model", lambda *_: (Spy(), card))
    return seen


def test_images_of_any_size_become_training_pixels(pictures, tmp_path, monkeypatch, capsys):
    sizes = [(40, 36), (60, 90), (28, 28), (300, 200), (41, 36), (64, 48)]
    for i, (height, width) in enumerate(sizes):
        ending = ("png", "jpg", "bmp")[i % 3]
        save(pictures / "train" / "ab"[i % 2] / f"{i}.{ending}", colours(height, width, i))
    palette = Image.fromarray(colours(30, 30, 9)).quantize(16)
    palette.save(pictures / "train" / "a" / "9.png", transparency=bytes(range(0, 160, 10)))
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6  # a camera held sideways
    Image.fromarray(colours(200, 260, 7)).save(pictures / "train" / "b" / "7.jpg", exif=exif)
    save(tmp_path / "pictures" / "test" / "a" / "x.png", colours(40, 36, 0))
    trained = read_image_folder(pictures, tmp_path / "cache").train_samples
    _, channels, height, width = trained.shape
    assert channels == 3
    card = ModelCard("cnn", (3, height, width), ("a", "b"), "flt", 0, 1)
    seen = spied(monkeypatch, card)
    assert call("model", pictures / "train") == 0
    out, err = capsys.readouterr()
    assert [row[0] for row in rows_of(out)] == list(map(str, find_images(pictures / "train")))
    assert err == ""
    assert torch.equal(torch.cat(seen), as_pixels(trained))


def test_probabilities_by_hand(brightness, pictures, capsys):
    # Pixels of 51 and 204 are 0.2 and 0.8: exp(±2.4) stand against 1.
    save(pictures / "a.png", gray(51))
    save(pictures / "b.png", gray(204))
    said = [f"{pictures}/a.png,dark,0.916827\r\n", f"{pictures}/b.png,light,0.916827\r\n"]
    for source, rows in ((pictures, said), (pictures / "b.png", said[1:])):
        assert call(brightness, source) == 0
        assert capsys.readouterr() == ("path,class,probability\r\n" + "".join(rows), "")


def test_a_number_is_predicted_in_a_column_of_its_name(pictures, tmp_path, capsys):
    # 8 times the mean of four pixels, less 4.
    path = saved(tmp_path / "number.safetensors", ("age (years)",), [2], [-4])
    save(pictures / "a.png", gray(51))
    save(pictures / "b.png", gray(204))
    assert call(path, pictures, "--output", tmp_path / "out.csv") == 0
    rows = list(csv.reader((tmp_path / "out.csv").read_text().splitlines()))
    assert rows[0] == ["path", "age (years)"]
    assert [float(number) for _, number in rows[1:]] == pytest.approx([-2.4, 2.4])
    assert "2 images have their age (years)" in capsys.readouterr().out
    ages = (
        "import numpy as np\n"
        "def load():\n"
        "    rows = np.array([51, 204], np.uint8).reshape(2, 1, 1, 1).repeat(2, 2).repeat(2, 3)\n"
        "    return rows, np.zeros(2, np.float32), rows, np.zeros(2, np.float32), 'age (years)'\n"
    )
    with own_modules(tmp_path, ages=ages):
        assert main(["classify", str(path), "--data", "ages:load"]) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out, newline="")))
    assert rows[0] == ["sample", "age (years)"]
    assert [float(number) for _, number in rows[1:]] == pytest.approx([-2.4, 2.4])


def test_all_image_files_at_any_depth_sorted_without_hidden_ones(pictures, tmp_path):
    for name in ("b/2.png", "b/10.PNG", "a.bmp", "b/c/d.png", ".h.png", ".git/x.png", "b/.i/y.png"):
        save(pictures / name, gray(0))
    (pictures / "notes.txt").touch()
    (pictures / "folder.png").mkdir()
    save(tmp_path / "elsewhere" / "e.png", gray(0))
    (pictures / "link").symlink_to(tmp_path / "elsewhere")
    (pictures / "z.png").symlink_to(tmp_path / "elsewhere" / "e.png")
    found = [str(path.relative_to(pictures)) for path in find_images(pictures)]
    assert found == ["a.bmp", "b/10.PNG", "b/2.png", "b/c/d.png", "z.png"]


ODD_NAMES = [
    "comma,.png",
    'quo"te.png',
    "new\nline.png",
    "carriage\rreturn.png",
    "ünï.png",
    " .png",
]


@pytest.mark.parametrize("to_file", [False, True])
def test_names_of_any_kind_come_back_from_the_csv(brightness, pictures, capsysbinary, to_file):
    undecodable = os.fsdecode(b"\xff\xfe.png")
    for name in (*ODD_NAMES, undecodable):
        save(pictures / name, gray(255))
    output = pictures / "rows.csv"
    assert call(brightness, pictures, *(["--output", output] if to_file else [])) == 0
    out = capsysbinary.readouterr().out
    content = output.read_bytes() if to_file else out
    rows = rows_of(content.decode("utf-8", "surrogateescape"))
    assert {row[0] for row in rows} == {str(pictures / n) for n in (*ODD_NAMES, undecodable)}


def test_class_names_are_data_to_csv_and_table(tmp_path, pictures, capsys):
    path = saved(tmp_path / "model.safetensors", ("[red]a,b", "\x1b[2J\n"), [0, 2], [0, -4])
    save(pictures / "a.png", gray(0))
    save(pictures / "b.png", gray(255))
    assert call(path, pictures, "--output", tmp_path / "out.csv") == 0
    with (tmp_path / "out.csv").open(newline="") as file:
        assert [row[1] for row in rows_of(file.read())] == ["[red]a,b", r"\x1b[2J\n"]
    shown = capsys.readouterr().out
    assert "[red]a,b" in shown
    assert r"\x1b[2J\n" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("sign", "=+-@")
def test_no_cell_is_a_formula_and_paths_can_be_opened(tmp_path, monkeypatch, capsys, sign):
    monkeypatch.chdir(tmp_path)
    path = saved(Path("model.safetensors"), (f"{sign}1+1", "y"), [0, 0], [9, 0])
    save(Path(f"{sign}1.png"), gray(0))
    assert call(path, Path()) == 0
    (row,) = rows_of(capsys.readouterr().out)
    assert row[:2] == [f"./{sign}1.png", f"'{sign}1+1"]
    assert Path(row[0]).is_file()


def test_a_file_gets_the_rows_and_the_terminal_a_table(brightness, pictures, tmp_path, capsys):
    for i, value in enumerate([0, 255, 10, 20]):
        save(pictures / f"{i}.png", gray(value))
    output = tmp_path / "new" / "out.csv"
    assert call(brightness, pictures, "--output", output) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("4 images: 3 dark, 1 light\n", "")
    assert [row[1] for row in rows_of(output.read_text())] == ["dark", "light", "dark", "dark"]
    assert [file.name for file in output.parent.iterdir()] == ["out.csv"]


def test_images_that_cannot_be_decoded_do_not_stop_the_others(brightness, pictures, capsys):
    save(pictures / "a.png", gray(0))
    save(pictures / "z.png", gray(255))
    (pictures / "empty.png").touch()
    (pictures / "text.jpg").write_text("no image")
    whole = save(pictures / "cut.png", colours(50, 50, 0)[..., 0]).read_bytes()
    (pictures / "cut.png").write_bytes(whole[: len(whole) // 2])
    Image.fromarray(np.zeros((2, 2), np.uint16)).save(pictures / "deep.png")
    (pictures / "gone\n.png").symlink_to(pictures / "nowhere.png")
    os.mkfifo(pictures / "pipe.png")
    assert call(brightness, pictures) == 1
    out, err = capsys.readouterr()
    assert [row[1:] for row in rows_of(out)] == [["dark", "0.982014"], ["light", "0.982014"]]
    named = dict(line.removeprefix(f"{pictures}/").split(" ", 1) for line in err.splitlines())
    formats = "it is none of BMP, GIF, JPEG, PNG, PPM, TIFF, WEBP."
    assert named.pop("cut.png").startswith("cannot be decoded: ")
    assert "I;16" in named.pop("deep.png")
    assert {named.pop(name) for name in ("empty.png", "text.jpg")} == {
        f"cannot be decoded: {formats}"
    }
    assert named == dict.fromkeys(
        (r"gone\n.png", "pipe.png"), "cannot be decoded: it is not a file."
    )


def test_colour_images_become_gray_for_a_gray_model(brightness, pictures, capsys):
    # ITU-R 601: pure green is 0.587·255 = 149.7 of gray, pure blue 0.114·255 = 29.1.
    for name, colour in (("blue", (0, 0, 255)), ("green", (0, 255, 0))):
        save(pictures / f"{name}.png", np.full((2, 2, 3), colour, np.uint8))
    save(pictures / "white.png", gray(255))
    assert call(brightness, pictures) == 0
    out, err = capsys.readouterr()
    assert [row[1] for row in rows_of(out)] == ["dark", "light", "light"]
    assert err.startswith("2 colour image(s) were converted to grey, since the model was trained")


def test_gray_images_get_three_channels_for_a_colour_model(tmp_path, pictures, capsys):
    path = tmp_path / "model.safetensors"
    saved(path, ("red", "green"), np.eye(3, 2), [0, 0.1], shape=(3, 1, 1))
    save(pictures / "gray.png", gray(200, 1, 1))  # red and green are equal: the bias decides
    save(pictures / "red.png", np.uint8([[[255, 0, 0]]]))
    assert call(path, pictures) == 0
    out, err = capsys.readouterr()
    assert [row[1] for row in rows_of(out)] == ["green", "red"]
    assert err.startswith("1 grey image(s) were converted to colour, since")


def test_what_is_not_there_or_no_file_is_refused_and_left_alone(brightness, pictures, tmp_path):
    (tmp_path / "empty").mkdir()
    save(pictures / "a.png", gray(0))
    os.mkfifo(tmp_path / "pipe")
    for words, said in (
        (
            (brightness, tmp_path / "empty"),
            r"empty has no images, files that end in \.bmp .*\.webp",
        ),
        ((brightness, tmp_path / "nowhere"), "nowhere does not exist: give a folder of images"),
        ((brightness, tmp_path / "t.csv"), "cannot be classified by .*, which takes images"),
        ((pictures / "a.png", pictures), r"a\.png is not a model of this app"),
        ((brightness, pictures, "--output", pictures), "pictures, which is not a file"),
        ((brightness, pictures, "--output", tmp_path / "pipe"), "pipe, which is not a file"),
    ):
        with pytest.raises(ValueError, match=said):
            call(*words)
    assert (tmp_path / "pipe").is_fifo()


def test_a_folder_that_cannot_be_read_is_not_passed_over(pictures, monkeypatch):
    save(pictures / "a.png", gray(0))
    save(pictures / "closed" / "b.png", gray(0))

    def refused(folder, scan=os.scandir):
        if Path(folder).name == "closed":
            raise PermissionError(13, "Permission denied", str(folder))
        return scan(folder)

    monkeypatch.setattr(os, "scandir", refused)  # root may read any file
    with pytest.raises(PermissionError, match="closed"):
        find_images(pictures)


@pytest.mark.slow
def test_a_reader_that_has_enough_is_no_error(brightness, pictures):
    """As `| head -1`, which closes the pipe."""
    save(pictures / "a.png", gray(255))
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-m", "fl_app.cli", "classify", str(brightness), str(pictures)]
    outputs = {"stdout": writer, "stderr": subprocess.PIPE}
    ended = subprocess.run(words, cwd=ROOT, check=False, **outputs)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, b"")


def test_a_model_that_diverged(tmp_path, pictures):
    path = saved(tmp_path / "m.safetensors", ("a", "b"), [0, 0], [0, np.nan])
    save(pictures / "a.png", gray(0))
    with pytest.raises(ValueError, match="the model are not finite: its training failed"):
        call(path, pictures, "--output", tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()
