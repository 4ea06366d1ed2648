"""models.toml: defaults, and that each fault is told with file, line and key."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from inference.catalog import ROOT, EngineSpec, InvalidModelsFile, ModelSpec, PriceSpec, ReasoningSpec, read_models
from inference.models import Model, Replica

LEAST = """\
[[models]]
name = "small"
context_length = 4096
replicas = ["http://127.0.0.1:8100"]
"""


@pytest.fixture
def models_file(tmp_path: Path) -> Path:
    return tmp_path / "models.toml"


def test_the_file_of_the_repository_is_valid() -> None:
    (model,) = read_models(ROOT / "models.toml")
    assert model.name == "smollm2-135m"
    assert model.path == ROOT / "var" / "models" / "smollm2-135m"
    assert model.engine.start


def test_defaults(models_file: Path) -> None:
    models_file.write_text(LEAST)
    assert read_models(models_file) == [
        ModelSpec(
            name="small",
            title="small",
            context_length=4096,
            path=None,
            engine_model="",
            system_prompt="",
            tiers=("free", "paid", "enterprise"),
            fallback="",
            reasoning=None,
            replicas=("http://127.0.0.1:8100",),
            engine=EngineSpec(start=False, count=1, args=()),
            price=PriceSpec(Decimal(0), Decimal(0), Decimal(0)),
        )
    ]


def test_every_key(models_file: Path) -> None:
    models_file.write_text(
        """\
[[models]]
name = "thinker"
title = "Thinker 7B"
context_length = 32768
path = "var/models/thinker"
engine_model = "org/Thinker-7B"
system_prompt = "Be brief."
tiers = ["paid", "enterprise"]
fallback = "small"
reasoning = {open = "<think>", close = "</think>"}
replicas = ["http://10.0.0.5:8000/", "https://engines.example/thinker"]
price = {input = "0.10", output = "0.40"}

[models.engine]
start = true
count = 2
args = ["--seed", "1", "--seed"]

[[models]]
name = "small"
context_length = 4096
path = "/models/small"
engine = {start = true}
"""
    )
    thinker, small = read_models(models_file)
    assert thinker == ModelSpec(
        name="thinker",
        title="Thinker 7B",
        context_length=32768,
        path=ROOT / "var/models/thinker",
        engine_model="org/Thinker-7B",
        system_prompt="Be brief.",
        tiers=("paid", "enterprise"),
        fallback="small",
        reasoning=ReasoningSpec("<think>", "</think>"),
        replicas=("http://10.0.0.5:8000", "https://engines.example/thinker"),
        engine=EngineSpec(True, 2, ("--seed", "1", "--seed")),
        price=PriceSpec(Decimal("0.10"), Decimal("0.10"), Decimal("0.40")),
    )
    assert small.path == Path("/models/small")


@pytest.mark.parametrize(
    ("line", "addition", "expected"),
    [
        (5, "colour = 1", "models[1].colour is not a known key"),
        (5, "title = 1", "models[1].title must be a string"),
        (5, 'engine_model = "a\\u0000b"', "models[1].engine_model must not hold a NUL"),
        (5, 'system_prompt = "a\\u0000b"', "models[1].system_prompt must not hold a NUL"),
        (5, 'tiers = ["free\\u0000"]', "models[1].tiers must not hold a NUL"),
        (5, 'engine = {args = ["--seed\\u0000"]}', "models[1].engine.args must not hold a NUL"),
        (5, 'price = {input = "1", output = "1\\u0000"}', "models[1].price.output must not hold a NUL"),
        (5, f'title = "{"é" * 151}"', "models[1].title has 151 characters, and at most 150 fit"),
        (5, f'engine_model = "{"e" * 201}"', "models[1].engine_model has 201 characters, and at most 200 fit"),
        (5, f'path = "/{"p" * 500}"', "models[1].path has 501 characters, and at most 500 fit"),
        (5, f'path = "{"p" * 500}"', f"models[1].path has {len(str(ROOT)) + 501} characters"),
        (5, 'path = "~nobody-of-that-name/x"', "models[1].path begins with the home folder of a user who is not known"),
        (
            5,
            f'reasoning = {{open = "{"<" * 51}", close = ">"}}',
            "models[1].reasoning.open has 51 characters, and at most 50 fit",
        ),
        (
            5,
            f'reasoning = {{open = "<", close = "{">" * 51}"}}',
            "models[1].reasoning.close has 51 characters, and at most 50 fit",
        ),
        (5, 'path = "/models/small"', "models[1].path must be a folder with tokenizer.json, and /models/small is none"),
        (5, f'path = "/{"p" * 300}"', "models[1].path must be a folder with tokenizer.json"),
        (5, "tiers = []", "models[1].tiers must name at least one of free, paid, enterprise"),
        (5, 'tiers = ["free", "gold"]', "models[1].tiers names 'gold'"),
        (5, 'tiers = ["free", "free"]', "models[1].tiers names something twice"),
        (5, 'tiers = "free"', "models[1].tiers must be a list"),
        (5, "tiers = [1]", "models[1].tiers must be a list of strings"),
        (5, 'price = {input = "-1", output = "1"}', "models[1].price.input must be at least 0"),
        (5, 'price = {input = "NaN", output = "1"}', "models[1].price.input must be at least 0"),
        (5, 'price = {input = "1e9", output = "1"}', "models[1].price.input must be at least 0 and less than"),
        (5, 'price = {input = "1000000", output = "1"}', "models[1].price.input must be at least 0 and less than"),
        (5, 'price = {input = "1e99999", output = "1"}', "models[1].price.input must be at least 0 and less than"),
        (5, 'price = {input = "0.1234567", output = "1"}', "models[1].price.input has more than 6 decimals"),
        (5, 'price = {input = "1/2", output = "1"}', "models[1].price.input is '1/2', which is no decimal number"),
        (5, 'price = {input = 0.1, output = "1"}', "models[1].price.input must be a string"),
        (5, 'price = {input = "0.1"}', "models[1].price lacks the key output"),
        (5, 'price = {input = "1", output = "1", extra = "1"}', "models[1].price.extra is not a known key"),
        (7, '\n[models.price]\ninput = "x"\noutput = "1"', "models[1].price.input is 'x'"),
        (5, 'fallback = "big"', "models[1].fallback names 'big', which is not another model"),
        (5, 'fallback = "small"', "models[1].fallback names 'small', which is not another model"),
        (5, 'reasoning = {open = "<think>"}', "models[1].reasoning needs both markers"),
        (5, "engine = true", "models[1].engine must be a table"),
        (5, "engine = {start = 1}", "models[1].engine.start must be true or false"),
        (5, "engine = {count = 0}", "models[1].engine.count must be 1 to 64"),
        (5, "engine = {count = true}", "models[1].engine.count must be a whole number"),
        (5, 'engine = {args = ["--port=1"]}', "models[1].engine.args has --port=1, which the product sets itself"),
        (5, "engine = {start = true}", "models[1].engine starts an engine, which needs the key path"),
    ],
)
def test_a_fault_is_told_with_file_line_and_key(models_file: Path, line: int, addition: str, expected: str) -> None:
    models_file.write_text(LEAST + addition + "\n")
    assert error_of(models_file).startswith(f"{models_file}, line {line}: {expected}")


@pytest.mark.parametrize(
    ("old", "new", "line", "expected"),
    [
        ('name = "small"', 'name = ""', 2, "models[1].name must begin with a letter or digit"),
        ('name = "small"', 'name = "{m}"', 2, "models[1].name must begin with a letter or digit"),
        ('name = "small"', f'name = "{"n" * 101}"', 2, "models[1].name must begin with a letter or digit"),
        ('name = "small"\n', "", 1, "models[1] lacks the key name"),
        ("context_length = 4096\n", "", 1, "models[1] lacks the key context_length"),
        ("4096", "4096.0", 3, "models[1].context_length must be a whole number"),
        ("4096", "true", 3, "models[1].context_length must be a whole number"),
        ("4096", "2147483648", 3, "models[1].context_length must be at most 2147483647 tokens"),
        ("4096", "0", 3, "models[1].context_length must be at least 1 token"),
        ('replicas = ["http://127.0.0.1:8100"]\n', "", 1, "models[1] has nothing to run on"),
        ("http://127.0.0.1:8100", "127.0.0.1:8100", 4, "models[1].replicas has the URL '127.0.0.1:8100', which is not"),
        ("http://127.0.0.1:8100", "http://127.0.0.1:99999", 4, "models[1].replicas has the URL"),
        ("http://127.0.0.1:8100", "http://u:p@h:1", 4, "models[1].replicas has the URL 'http://u:p@h:1', which must"),
        ("http://127.0.0.1:8100", "http://127.0.0.1:1/v1", 4, "models[1].replicas has the URL"),
        (
            "http://127.0.0.1:8100",
            f"http://h/{'u' * 292}",
            4,
            "models[1].replicas has 301 characters, and at most 300 fit",
        ),
        ("http://127.0.0.1:8100", "ftp://127.0.0.1", 4, "models[1].replicas has the URL"),
    ],
)
def test_a_bad_value_of_the_least_file(models_file: Path, old: str, new: str, line: int, expected: str) -> None:
    models_file.write_text(LEAST.replace(old, new))
    assert error_of(models_file).startswith(f"{models_file}, line {line}: {expected}")


def test_the_line_is_found_past_strings_and_comments_that_look_like_keys(models_file: Path) -> None:
    text = '# tiers = []\n[[models]]\nsystem_prompt = """\n[[models]]\ntiers = []\n"""\n'
    models_file.write_text(text + LEAST.replace("[[models]]\n", "") + "\n# so:\n\ntiers = [\n  'gold',\n]\n")
    assert error_of(models_file).startswith(f"{models_file}, line 13: models[1].tiers names 'gold'")


def test_a_fault_in_a_later_model(models_file: Path) -> None:
    models_file.write_text(LEAST + LEAST.replace("small", "large") + "colour = 1\n")
    assert error_of(models_file).startswith(f"{models_file}, line 9: models[2].colour is not a known key")


def test_two_models_of_one_name(models_file: Path) -> None:
    models_file.write_text(LEAST + LEAST)
    assert error_of(models_file) == f"{models_file}, line 6: models[2].name 'small' is there twice"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", ": names no model"),
        (b"models = []", ": names no model"),
        (b"models = [1]", ", line 1: models[1] must be a table"),
        (b"models = 1", ", line 1: models must be a list"),
        (b"[[modells]]\nname = 'x'", ", line 1: modells is not a known key (known: models)"),
        (b"[[models]]\nname = 'a'\nname = 'b'\n", ", line 3: is not valid TOML at 'name'"),
        (b"[[models]]\nname 'a'\n", ", line 2: is not valid TOML"),
        (b'[[models]]\ntitle = """a\n', ", line 3: is not valid TOML"),
        (b"[[models]]\n# \xff\n", ", line 2: is not UTF-8 text"),
    ],
)
def test_a_file_that_cannot_be_read(models_file: Path, content: bytes, expected: str) -> None:
    models_file.write_bytes(content)
    assert error_of(models_file).startswith(f"{models_file}{expected}")


def test_a_file_that_is_not_there(models_file: Path) -> None:
    assert error_of(models_file) == f"{models_file}: cannot be read: No such file or directory"


@pytest.mark.django_db
def test_the_longest_values_that_are_accepted_fit_the_tables(models_file: Path, settings: Any) -> None:
    """Nothing that passes here may stop the start later, with a traceback."""
    parent = str(models_file.parent)
    folder = Path(f"{parent}/{'p' * 200}/{'p' * (500 - len(parent) - 202)}")
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").touch()
    models_file.write_text(
        f"""\
[[models]]
name = "{"n" * 100}"
title = "{"é" * 150}"
context_length = 2147483647
path = "{folder}"
engine_model = "{"e" * 200}"
reasoning = {{open = "{"<" * 50}", close = "{">" * 50}"}}
replicas = ["http://h/{"u" * 291}"]
price = {{input = "999999.999999", cached = "0E+30", output = "0.0000010000000"}}
"""
    )
    settings.MODELS_FILE = models_file
    call_command("syncmodels", verbosity=0)
    model, replica = Model.objects.get(name="n" * 100), Replica.objects.get(model="n" * 100)
    assert (len(model.title), len(model.path), len(replica.url)) == (150, 500, 300)
    assert (model.price_input, model.price_output) == (Decimal("999999.999999"), Decimal("0.000001"))


def test_the_folder_of_a_model_without_an_engine_of_ours_needs_its_tokenizer(models_file: Path) -> None:
    folder = models_file.parent / "small"
    models_file.write_text(LEAST + f'path = "{folder}"\n')
    assert error_of(models_file).startswith(
        f"{models_file}, line 5: models[1].path must be a folder with tokenizer.json"
    )
    folder.mkdir()
    assert "must be a folder with tokenizer.json" in error_of(models_file)
    (folder / "tokenizer.json").touch()
    assert read_models(models_file)[0].path == folder


@pytest.mark.parametrize("command", ["up", "syncmodels"])
def test_a_folder_that_is_not_there_stops_the_start_with_the_reason(
    models_file: Path, settings: Any, command: str
) -> None:
    models_file.write_text(LEAST + 'path = "/models/small"\n')
    settings.MODELS_FILE, settings.STATE_DIR = models_file, models_file.parent
    with pytest.raises(CommandError, match=r"line 5: models\[1\]\.path must be a folder with tokenizer\.json"):
        call_command(command)


def error_of(path: Path) -> str:
    with pytest.raises(InvalidModelsFile) as raised:
        read_models(path)
    return str(raised.value)
