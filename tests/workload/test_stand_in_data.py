"""Data that a script cannot reach: stand-ins of the published shapes and numbers take its place, and say so.

Numbers are those of the pages named in `public_data.csv`, typed here again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpuplan.settings import load_settings
from gpuplan.workload.capture.load import load_workload
from gpuplan.workload.capture.stand_in_data import build_keras_data
from gpuplan.workload.capture.stand_in_datasets import (
    build_image,
    find_public_data,
    read_public_data,
    write_folder,
)
from gpuplan.workload.errors import CaptureError
from gpuplan.workload.model import Workload
from gpuplan.workload.options import DataTerms, ScriptOptions, WorkloadOptions

HEAD = """
import os
import keras, numpy as np
from keras.src.backend import config
os.makedirs(os.path.join(os.path.dirname(__file__), "home"), exist_ok=True)
config._KERAS_DIR = os.path.join(os.path.dirname(__file__), "home")  # nothing was downloaded before
def fit(x, y=None, *, shape, units=1, loss="mse", **how):
    model = keras.Sequential([keras.Input(shape), keras.layers.Flatten(), keras.layers.Dense(units)])
    model.compile("sgd", loss)
    model.fit(x, y, **how)
"""


def follow(
    folder: Path, body: str, *, downloads: bool = False, samples: int | None = None, classes: int | None = None
) -> Workload:
    """Write a script and follow it; without downloads."""
    (folder / "train.py").write_text(HEAD + body, encoding="utf-8")
    data = DataTerms(downloads=downloads, samples=samples, classes=classes)
    options = WorkloadOptions(use_cache=False, samples=samples, script=ScriptOptions(data=data))
    return load_workload("train.py", options=options, base=folder)


def refuse(folder: Path, body: str, **how: Any) -> CaptureError:
    """Follow a script that cannot be planned."""
    with pytest.raises(CaptureError) as caught:
        follow(folder, body, **how)
    assert "\n" not in str(caught.value)
    return caught.value


def count_steps(workload: Workload) -> tuple[int | None, int, int | None, int | None]:
    """Return samples, batch size, steps and samples validated."""
    return workload.samples, workload.batch_size, workload.steps, workload.validation_samples


# --- the table --------------------------------------------------------------------------------------------

IMAGES = [
    ("mnist", (60_000, 28, 28), (60_000,), (10_000, 28, 28), "uint8", "uint8", 10),
    ("fashion_mnist", (60_000, 28, 28), (60_000,), (10_000, 28, 28), "uint8", "uint8", 10),
    ("cifar10", (50_000, 32, 32, 3), (50_000, 1), (10_000, 32, 32, 3), "uint8", "uint8", 10),
    ("cifar100", (50_000, 32, 32, 3), (50_000, 1), (10_000, 32, 32, 3), "uint8", "int64", 100),
]


@pytest.mark.parametrize(("name", "x_shape", "y_shape", "test_shape", "x_dtype", "y_dtype", "classes"), IMAGES)
def test_images_of_keras(  # noqa: PLR0917
    name: str,
    x_shape: tuple[int, ...],
    y_shape: tuple[int, ...],
    test_shape: tuple[int, ...],
    x_dtype: str,
    y_dtype: str,
    classes: int,
) -> None:
    """keras.io/api/datasets: shapes, types and classes; images take no memory until they are written to."""
    data = find_public_data("keras", name)
    assert data is not None
    (x, y), (x_test, y_test) = build_keras_data(data, {})

    assert (x.shape, y.shape, x_test.shape) == (x_shape, y_shape, test_shape)
    assert y_test.shape == (test_shape[0], *y_shape[1:])
    assert (str(x.dtype), str(y.dtype)) == (x_dtype, y_dtype)
    assert np.unique(y).tolist() == list(range(classes))
    assert x.max() == 255
    x[1] = 1  # as scripts may


def test_arguments_of_keras_data_sets() -> None:
    """20 coarse classes; 600 and 506 houses cut at 80 % and 75 %: 480 and 120, 379 and 127."""
    coarse = find_public_data("keras", "cifar100")
    houses, boston = find_public_data("keras", "california_housing"), find_public_data("keras", "boston_housing")
    assert None not in (coarse, houses, boston)
    (_, labels), _ = build_keras_data(coarse, {"label_mode": "coarse"})
    (x, y), (x_test, _) = build_keras_data(houses, {"version": "small", "test_split": 0.2})
    (all_x, _), _ = build_keras_data(houses, {"version": "large", "test_split": 0.2})
    (rooms, prices), (rooms_test, _) = build_keras_data(boston, {"test_split": 0.25})

    assert labels.max() == 19
    assert (x.shape, y.shape, x_test.shape, all_x.shape) == ((480, 8), (480,), (120, 8), (16_512, 8))
    assert (rooms.shape, prices.shape, rooms_test.shape) == ((379, 13), (379,), (127, 13))
    assert rooms.std(axis=0).min() > 0  # a script divides by it


def test_texts_of_keras() -> None:
    """25,000 reviews of at most 2,494 words, word 9,999 the last of 10,000; 8,982 of 11,228 newswires."""
    imdb, reuters = find_public_data("keras", "imdb"), find_public_data("keras", "reuters")
    assert None not in (imdb, reuters)
    usual = {"num_words": 10_000, "maxlen": None, "index_from": 3}
    (x, y), (x_test, _) = build_keras_data(imdb, usual)
    (short, _), _ = build_keras_data(imdb, usual | {"maxlen": 100})
    (every, _), _ = build_keras_data(imdb, usual | {"num_words": None})
    (news, topics), (news_test, _) = build_keras_data(reuters, usual | {"test_split": 0.2})

    assert (len(x), len(y), len(x_test), x.dtype) == (25_000, 25_000, 25_000, object)
    assert max(map(len, x)) == 2_494
    assert max(map(max, x)) == 9_999
    assert max(map(len, short)) == 99  # Keras keeps what is shorter
    assert max(map(max, every)) == 88_586  # the last of 88,584 words, from index 3 on
    assert (len(news), len(news_test), topics.max()) == (8_982, 2_246, 45)


@pytest.mark.parametrize(
    ("library", "name", "config", "split", "samples"),
    [
        ("tfds", "mnist", None, "train", 60_000),
        ("tfds", "mnist:3.0.1", None, "train[:80%]", 48_000),
        ("tfds", "cifar10", None, "train+test", 60_000),
        ("tfds", "cats_vs_dogs", None, "train[80%:90%]", 2_326),  # 20,936 to 18,610 of 23,262
        ("tfds", "imdb_reviews/plain_text", None, "unsupervised", 50_000),
        ("tfds", "imdb_reviews/subwords8k", None, "train", None),
        ("tfds", "glue/mrpc", None, "validation", 408),
        ("tfds", "imagenet2012", None, "train", 1_281_167),
        ("tfds", "oxford_flowers102", None, "test[-149:]", 149),
        ("huggingface", "imdb", None, "train", 25_000),
        ("huggingface", "stanfordnlp/imdb", "plain_text", "train[1000:]", 24_000),
        ("huggingface", "nyu-mll/glue", "sst2", "train", 67_349),
        ("huggingface", "glue", None, "train", None),  # it needs a configuration
        ("huggingface", "dair-ai/emotion", "unsplit", "train", None),
        ("huggingface", "someone/cifar10", None, "train", None),
        ("huggingface", "wikitext", "wikitext-2-raw-v1", "validation", 3_760),
        ("huggingface", "beans", None, "nothing", None),
    ],
)
def test_samples_of_a_split(library: Any, name: str, config: str | None, split: str, samples: int | None) -> None:
    """Catalogs of TensorFlow Datasets and Hugging Face; None where nothing is known of it."""
    data = find_public_data(library, name, config)

    assert (None if data is None else data.count(split)) == samples


def test_every_row_has_a_source_and_fields_that_can_be_read() -> None:
    """Each row of the table."""
    rows = read_public_data().values()
    for row in rows:
        assert row.source.startswith("https://")
        assert min(row.sizes.values()) > 0
        assert row.library in ("text", "archive") or row.fields

    assert len(rows) > 60


# --- scripts ----------------------------------------------------------------------------------------------


def test_mnist_that_cannot_be_downloaded(tmp_path: Path) -> None:
    """60,000 samples in batches of 32: 1,875 steps x 5 epochs; of 784 inputs and 10 outputs 7,850 parameters."""
    workload = follow(
        tmp_path,
        "(x, y), _ = keras.datasets.mnist.load_data()\n"
        "x = x.astype('float32') / 255\n"
        "fit(x, y, shape=(28, 28), units=10, loss='sparse_categorical_crossentropy', epochs=5)",
    )

    assert count_steps(workload) == (60_000, 32, 9_375, None)
    assert workload.parameters == 7_850
    assert [note for note in workload.notes if "keras.datasets.mnist was not downloaded" in note]


def test_a_download_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy on a closed port of this machine: the failure is met with the same stand-ins."""
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    workload = follow(
        tmp_path,
        "from keras.datasets import reuters\n"
        "(x, y), (x_test, y_test) = reuters.load_data(num_words=1000, maxlen=50)\n"
        "x = keras.utils.pad_sequences(x)\n"
        "fit(x, y, shape=(x.shape[1],), batch_size=100)",
        downloads=True,
    )

    assert count_steps(workload) == (8_982, 100, 90, None)
    assert workload.parameters == 49 + 1
    assert [note for note in workload.notes if "keras.datasets.reuters could not be loaded" in note]
    assert [note for note in workload.notes if "longer than `maxlen`" in note]


def test_wrong_arguments_are_no_missing_data(tmp_path: Path) -> None:
    """The error of Keras itself."""
    assert "label_mode" in str(refuse(tmp_path, "keras.datasets.cifar100.load_data(label_mode='x')"))


def test_texts_that_cannot_be_downloaded(tmp_path: Path) -> None:
    """keras.io: 600,893 characters of Nietzsche, 56 different ones in lower case without the ends of lines."""
    workload = follow(
        tmp_path,
        "path = keras.utils.get_file('nietzsche.txt', origin='https://s3.amazonaws.com/text-datasets/nietzsche.txt')\n"
        "text = open(path, encoding='utf-8').read().lower().replace('\\n', ' ')\n"
        "assert (len(text), len(set(text))) == (600_893, 56)\n"
        "path = keras.utils.get_file('s.txt', 'https://storage.googleapis.com/download.tensorflow.org/data/shakespeare.txt')\n"
        "text = open(path, 'rb').read().decode(encoding='utf-8')\n"
        "assert (len(text), len(set(text))) == (1_115_394, 65)\n"
        "fit(np.zeros((1, 1)), np.zeros((1, 1)), shape=(1,))",
    )

    assert len([note for note in workload.notes if "stands in for it" in note]) == 2


def test_a_generator_of_a_missing_folder(tmp_path: Path) -> None:
    """`flow_from_directory` of 400 images, a quarter held out; a binary class mode has two classes."""
    workload = follow(
        tmp_path,
        "from keras.src.legacy.preprocessing.image import ImageDataGenerator\n"
        "images = ImageDataGenerator(validation_split=0.25)\n"
        "train = images.flow_from_directory('pets', class_mode='binary', subset='training')\n"
        "assert (train.samples, train.num_classes) == (300, 2)\n"
        "fit(np.zeros((train.samples, 1)), np.zeros((train.samples, 1)), shape=(1,))",
        samples=400,
    )

    assert [note for note in workload.notes if "`pets` is missing or empty: 400 stand-ins of 2 classes" in note]


TFDS = """
import tensorflow as tf
import tensorflow_datasets as tfds
(train, test), info = tfds.load("mnist", split=["train[:80%]", "test"], as_supervised=True, with_info=True)
classes, size = info.features["label"].num_classes, info.splits["train[:80%]"].num_examples
assert (classes, size, info.features["image"].shape) == (10, 48_000, (28, 28, 1))
prepare = lambda image, label: (tf.cast(image, tf.float32) / 255, tf.one_hot(label, classes))
train = train.map(prepare).cache().shuffle(size).batch(128).prefetch(2)
fit(train, shape=(28, 28, 1), units=classes, epochs=2, validation_data=test.map(prepare).batch(100))
"""


def test_a_tensorflow_data_set_that_cannot_be_loaded(tmp_path: Path) -> None:
    """48,000 of 60,000 samples in batches of 128: 375 steps x 2 epochs; 10,000 validated."""
    pytest.importorskip("tensorflow")
    workload = follow(tmp_path, TFDS)

    assert count_steps(workload) == (48_000, 128, 750, 10_000)
    assert [note for note in workload.notes if "tfds.load('mnist') was not downloaded" in note]


def test_forms_of_tensorflow_data_sets(tmp_path: Path) -> None:
    """A builder, a dict of splits, a single batch, NumPy; a text of many words; 1,281,167 images."""
    pytest.importorskip("tensorflow")
    workload = follow(
        tmp_path,
        """
import tensorflow_datasets as tfds
if hasattr(tfds, "__version__"):
    raise SystemExit(fit(np.zeros((1, 1)), np.zeros((1, 1)), shape=(1,)))  # the real one has them
builder = tfds.builder("cifar10")
builder.download_and_prepare()
one = next(iter(tfds.as_numpy(builder.as_dataset(split="test"))))
assert (one["image"].shape, one["image"].dtype, sorted(one)) == ((32, 32, 3), np.uint8, ["id", "image", "label"])
assert {name: len(data) for name, data in tfds.load("rock_paper_scissors").items()} == {"train": 2520, "test": 372}
x, y = tfds.as_numpy(tfds.load("iris", split="train", batch_size=-1, as_supervised=True))
assert (x.shape, x.dtype, np.unique(y).tolist()) == ((150, 4), np.float32, [0, 1, 2])
assert len(tfds.load("imagenet2012", split="train")) == 1_281_167
texts = tfds.load("imdb_reviews", split="train[:200]", as_supervised=True)
words = keras.layers.TextVectorization(max_tokens=5000)
words.adapt(texts.map(lambda text, label: text).batch(50))
assert words.vocabulary_size() == 5000
fit(x, y, shape=(4,))
""",
    )

    assert workload.batch_size == 32


FOLDERS = """
train = keras.utils.image_dataset_from_directory("data/train", image_size=(64, 64), batch_size=16)
valid = keras.utils.image_dataset_from_directory("data/val", image_size=(64, 64), batch_size=10)
assert len(train.class_names) == 4
fit(train, shape=(64, 64, 3), epochs=3, validation_data=valid)
"""


def test_a_missing_folder_of_images(tmp_path: Path) -> None:
    """1,000 images in batches of 16: 63 steps x 3 epochs; a fifth as many are validated; nothing is kept."""
    pytest.importorskip("tensorflow")
    workload = follow(tmp_path, FOLDERS, samples=1000, classes=4)

    assert count_steps(workload) == (1000, 16, 189, 200)
    assert workload.parameters == 64 * 64 * 3 + 1
    assert [note for note in workload.notes if "`data/train` is missing or empty: 1000 stand-ins of 4" in note]
    assert [note for note in workload.notes if "`data/val` is missing or empty: 200 stand-ins" in note]


@pytest.mark.parametrize(
    ("given", "flags"),
    [
        ({}, "`--samples N --assume classes=N` plans"),
        ({"samples": 100}, "`--assume classes=N` plans"),
        ({"classes": 3}, "`--samples N` plans"),
    ],
)
def test_what_to_type_for_a_missing_folder(tmp_path: Path, given: dict[str, int], flags: str) -> None:
    """The flags that are missing, and the line of the script."""
    error = refuse(tmp_path, FOLDERS, **given)

    assert "train.py, line 12: the folder `data/train` is missing or empty" in str(error)
    assert flags in str(error.hint)


def test_texts_and_audio_of_missing_folders(tmp_path: Path) -> None:
    """30 texts of two given classes; 30 sounds of 16,000 values, without classes."""
    pytest.importorskip("tensorflow")
    workload = follow(
        tmp_path,
        """
texts = keras.utils.text_dataset_from_directory("reviews", class_names=["neg", "pos"], batch_size=7)
text, label = next(iter(texts))
assert (len(texts), text.shape, sorted(set(np.concatenate([y for _, y in texts])))) == (5, (7,), [0, 1])
sounds = keras.utils.audio_dataset_from_directory("sounds", None, batch_size=30, output_sequence_length=16_000)
assert next(iter(sounds)).shape == (30, 16_000, 1)
fit(np.zeros((30, 1)), np.zeros((30, 1)), shape=(1,))
""",
        samples=30,
    )

    assert [note for note in workload.notes if "`reviews` is missing or empty: 30 stand-ins of 2 classes" in note]


def test_an_archive_that_cannot_be_downloaded(tmp_path: Path) -> None:
    """3,670 flowers of five classes (tensorflow.org/tutorials/load_data/images), a fifth held out: 2,936."""
    pytest.importorskip("tensorflow")
    workload = follow(
        tmp_path,
        """
import pathlib
origin = "https://storage.googleapis.com/download.tensorflow.org/example_images/flower_photos.tgz"
folder = pathlib.Path(keras.utils.get_file(origin=origin, extract=True)) / "flower_photos"
assert len(list(folder.glob("roses/*"))) == 641
train = keras.utils.image_dataset_from_directory(
    folder, validation_split=0.2, subset="training", seed=1, image_size=(32, 32), batch_size=32
)
assert train.class_names == ["daisy", "dandelion", "roses", "sunflowers", "tulips"]
fit(train, shape=(32, 32, 3))
""",
    )

    assert count_steps(workload)[:3] == (92 * 32, 32, 92)


FAKE_DATASETS = """
class FakeDataset:
    def __init__(self, columns, features, rows):
        self.columns, self.features, self.rows = columns, features, rows
    @staticmethod
    def from_dict(columns, features):
        return FakeDataset(columns, features, range(len(next(iter(columns.values())))))
    def select(self, indices): return FakeDataset(self.columns, self.features, [self.rows[i] for i in indices])
    def __len__(self): return len(self.rows)
    def __getitem__(self, name): return [self.columns[name][i] for i in self.rows]
class FakeFeature:
    def __init__(self, dtype=None, num_classes=None): self.dtype, self.num_classes = dtype, num_classes
Dataset, DatasetDict, Features = FakeDataset, dict, dict
Value = ClassLabel = Image = FakeFeature
def load_dataset(path, name=None, split=None): raise ConnectionError(path)
"""


def test_a_data_set_of_hugging_face(tmp_path: Path) -> None:
    """8,530 sentences for training; two labels; an unknown name fails as before."""
    (tmp_path / "datasets.py").write_text(FAKE_DATASETS, encoding="utf-8")
    workload = follow(
        tmp_path,
        """
from datasets import load_dataset
movies = load_dataset("rotten_tomatoes")
assert {name: len(rows) for name, rows in movies.items()} == {"train": 8530, "validation": 1066, "test": 1066}
train = load_dataset("cornell-movie-review-data/rotten_tomatoes", split="train[:50%]")
assert (len(train), train.features["label"].num_classes, len(train["text"][0].split())) == (4265, 2, 21)
assert load_dataset("ylecun/mnist", split="test")["image"][0]["bytes"].startswith(b"\\x89PNG")
try:
    load_dataset("someone/something")
except ConnectionError:
    fit(np.zeros((len(train), 1)), np.array(train["label"]), shape=(1,))
""",
    )

    assert count_steps(workload) == (4265, 32, 134, None)
    assert [
        note for note in workload.notes if "load_dataset('rotten_tomatoes')" in note and "placeholders" in note
    ]


# --- messages ---------------------------------------------------------------------------------------------

FUNCTIONS = """
def build():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
def build_of_data():
    return keras.Sequential([keras.Input((len(read()),)), keras.layers.Dense(1)])
def build_of(width):
    return keras.Sequential([keras.Input((width,)), keras.layers.Dense(1)])
def read():
    return np.load("x.npy")
"""


SMALL = "a small file of the same form will do, with `--samples N`"
WITHOUT = "`gpuplan estimate train.py:build --samples N --epochs N` plans its model without"
ARGUMENTS = "after `--`, as in `gpuplan estimate train.py -- --data PLACE`"


@pytest.mark.parametrize(
    ("body", "message", "hint"),
    [
        ("np.load('x.npy')", "train.py, line 11: there is no `x.npy` in", SMALL),
        ("import pandas\npandas.read_csv('a/b.csv')", "line 12: there is no `a/b.csv` in", SMALL),
        ("open('/nowhere/data.bin')", "line 11: there is no `/nowhere/data.bin`", "put it there"),
        ("os.listdir('photos')", "there is no `photos` in", "run gpuplan where it is"),
        ("import argparse\nopen('x.txt')", "there is no `x.txt`", ARGUMENTS),
        ("open(os.path.basename(__file__))", "there is no `train.py`", "beside the script: run gpuplan in"),
        (f"{FUNCTIONS}if __name__ == '__main__':\n    read()", "line 19: there is no `x.npy`", WITHOUT),
        (
            f"{FUNCTIONS}read()",
            "no `x.npy`",
            f'move what loads it below `if __name__ == "__main__":`, then {WITHOUT}',
        ),
        ("keras.utils.get_file('a.zip', 'https://a.example/a.zip')", "fetch failure", "`GPUPLAN_DOWNLOADS=true`"),
    ],
)
def test_missing_data_in_one_line(tmp_path: Path, body: str, message: str, hint: str) -> None:
    """The file with its line, and only what can be done in this script."""
    error = refuse(tmp_path, body)

    assert message in str(error)
    assert hint in str(error.hint)
    assert "build_of" not in str(error.hint)
    assert ("build" in str(error.hint)) == ("def build" in body)


def test_a_file_that_cannot_be_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keras looks for the file in its folder first."""
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    error = refuse(tmp_path, "keras.utils.get_file('a.csv', 'https://example.org/a.csv')", downloads=True)

    assert f"put the file at `{tmp_path}/home/datasets/a.csv`, where Keras looks first" in str(error.hint)


# --- files and terms --------------------------------------------------------------------------------------


def test_files_take_the_room_of_one(tmp_path: Path) -> None:
    """Three folders with 12,000 files, at most 10,000 of them links to the same one."""
    write_folder(tmp_path, {"a": 7000, "b": 4999, "c/d": 1}, ending=".jpg")
    files = list(tmp_path.rglob("*.jpg"))

    assert len(files) == 12_000
    assert len({path.stat().st_ino for path in files}) == 2
    assert build_image(4, 8)[16:24] == bytes([0, 0, 0, 8, 0, 0, 0, 4])  # width and height, of 4 bytes each


def test_terms_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--samples`, `--assume classes=`, and the setting `downloads`."""
    from gpuplan.plan.estimate_request import EstimateRequest
    from gpuplan.plan.request import build_workload_options

    monkeypatch.setenv("GPUPLAN_DOWNLOADS", "false")
    options = build_workload_options(EstimateRequest(samples=500, assume=["classes=7", "boot_s=90"]))

    assert options.script.data == DataTerms(downloads=False, samples=500, classes=7)
    assert load_settings(environ={}).downloads


def test_a_plan_of_stated_stand_ins_is_not_kept(tmp_path: Path) -> None:
    """The folder may be there next time: without `--samples` the same script is refused again."""
    (tmp_path / "train.py").write_text(
        HEAD
        + "from keras.src.legacy.preprocessing.image import ImageDataGenerator\n"
        + "n = ImageDataGenerator().flow_from_directory('pets', class_mode=None).samples\n"
        + "fit(np.zeros((n, 1)), np.zeros((n, 1)), shape=(1,))",
        encoding="utf-8",
    )
    stated = WorkloadOptions(samples=64, script=ScriptOptions(data=DataTerms(samples=64)))

    assert load_workload("train.py", options=stated, base=tmp_path).samples == 64
    with pytest.raises(CaptureError, match="`pets` is missing"):
        load_workload("train.py", options=WorkloadOptions(), base=tmp_path)
