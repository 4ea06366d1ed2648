"""vLLM's load generator, `vllm bench serve`, run by the engine's Python: its command line looks for another package."""

from vllm.benchmarks.serve import add_cli_args, main  # type: ignore[import-not-found]
from vllm.utils.argparse_utils import FlexibleArgumentParser  # type: ignore[import-not-found]

parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
