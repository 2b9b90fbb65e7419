"""One bad peer as a program: NAME SECONDS TARGET; prints what came of it as JSON."""

from __future__ import annotations

import json
import sys

import anyio
import msgspec

from syncline.testing.badpeers import PLANS, Target, run


def main() -> None:
    """Run one plan and print what came of it as JSON."""
    name, seconds, target = sys.argv[1:4]
    [peer] = [each for each in PLANS if each.name == name]
    attack = anyio.run(run, peer, msgspec.json.decode(target, type=Target), float(seconds), backend="trio")
    outcome = {"sent": attack.sent, "refused": attack.refused, "cut_after": attack.cut_after}
    sys.stdout.write(json.dumps({"plan": name, **outcome}) + "\n")


if __name__ == "__main__":
    main()
