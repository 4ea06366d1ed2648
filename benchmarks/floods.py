"""`make bench-flood`: a paying user beside a flood, on fake engines or (`--real`) on the real vLLM."""

import argparse

from benchmarks import flood, flood_real


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40.0, help="of each round")
    parser.add_argument("--times", type=float, default=5.0, help="the flood, in what the engines can do")
    parser.add_argument("--real", action="store_true", help="two replicas of the real vLLM")
    args = parser.parse_args()
    (flood_real if args.real else flood).run(args.seconds, args.times)


if __name__ == "__main__":
    main()
