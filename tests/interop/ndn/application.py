"""A python-ndn application, as its own process: serves a prefix, or asks for a name, through the forwarder that
NDN_CLIENT_TRANSPORT names. Arguments: v1|v2 serve PREFIX CONTENT | v1|v2 ask NAME."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from ndn import appv2
from ndn.app import NDNApp
from ndn.encoding import Name
from ndn.security import KeychainDigest
from ndn.security.signer.sha256_digest_signer import DigestSha256Signer
from ndn.types import InterestNack, InterestTimeout, ValidResult


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


async def accept(*_: Any) -> bool:
    return True


async def accept_v2(*_: Any) -> ValidResult:
    return ValidResult.PASS


def serve_v1(prefix: str, content: str) -> None:
    app = NDNApp(keychain=KeychainDigest())

    async def after_start() -> None:
        def on_interest(name: Any, param: Any, app_param: Any) -> None:
            app.put_data(name, content=content.encode(), freshness_period=10_000)

        say(registered=await app.register(prefix, on_interest))

    app.run_forever(after_start())


def ask_v1(name: str) -> None:
    app = NDNApp(keychain=KeychainDigest())

    async def after_start() -> None:
        try:
            got, _, content = await app.express_interest(name, lifetime=2_000, validator=accept)
            say(name=Name.to_str(got), content=bytes(content or b"").decode())
        except InterestNack as nack:
            say(nack=nack.reason)
        except InterestTimeout:
            say(timeout=True)
        app.shutdown()

    app.run_forever(after_start())


def serve_v2(prefix: str, content: str) -> None:
    app = appv2.NDNApp()

    async def after_start() -> None:
        def on_interest(name: Any, app_param: Any, reply: Any, context: Any) -> None:
            reply(app.make_data(name, content.encode(), signer=DigestSha256Signer(), freshness_period=10_000))

        app.attach_handler(prefix, on_interest)
        say(registered=await app.register(prefix))

    app.run_forever(after_start())


def ask_v2(name: str) -> None:
    app = appv2.NDNApp()

    async def after_start() -> None:
        try:
            got, content, _ = await app.express(name, accept_v2, lifetime=2_000)
            say(name=Name.to_str(got), content=bytes(content or b"").decode())
        except InterestNack as nack:
            say(nack=nack.reason)
        except InterestTimeout:
            say(timeout=True)
        app.shutdown()

    app.run_forever(after_start())


def main() -> None:
    version, what, *rest = sys.argv[1:]
    asyncio.set_event_loop(asyncio.new_event_loop())
    acts: dict[str, Any] = {"serve_v1": serve_v1, "ask_v1": ask_v1, "serve_v2": serve_v2, "ask_v2": ask_v2}
    acts[f"{what}_{version}"](*rest)


if __name__ == "__main__":
    main()
