"""The guarded fetch, each refusal against a real server on loopback."""

from __future__ import annotations

import gzip
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from syncline.core.errors import NotFoundError, RefusedError, SettingsError, UnavailableError, UnreachableError
from syncline.core.retry import Backoff
from syncline.core.verdict import Reason
from syncline.networks.fetch import Fetched, Fetcher, FetchPolicy

pytestmark = pytest.mark.anyio
LOOPBACK = ("127.0.0.1/32",)
QUICK = Backoff(first=0.001)

Answer = Callable[[BaseHTTPRequestHandler], None]


class Server:
    """A real HTTP server whose every request is answered by a function and counted."""

    def __init__(self, answer: Answer, address: str = "127.0.0.1", port: int = 0) -> None:
        self.requests: list[tuple[str, str]] = []  # path, Host
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                requests.append((self.path, self.headers["Host"]))
                answer(self)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer((address, port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://{address}:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def secure(self, certificate: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def start(self) -> Server:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def serving(answer: Answer, **kwargs: Any) -> Iterator[Server]:
    server = Server(answer, **kwargs).start()
    try:
        yield server
    finally:
        server.stop()


def body(content: bytes, *, coding: str = "", status: int = 200, length: int | None = None) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(content) if length is None else length))
        if coding:
            handler.send_header("Content-Encoding", coding)
        handler.end_headers()
        try:
            handler.wfile.write(content)
        except OSError:
            pass  # the client has seen enough

    return answer


def redirect(location: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", location)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def fetcher(allowed: Sequence[str] = LOOPBACK, resolve: Any = None, **policy: Any) -> Fetcher:
    built = FetchPolicy(allowed=tuple(allowed), backoff=QUICK, **policy)
    return Fetcher(built) if resolve is None else Fetcher(built, resolve=resolve)


@pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"])
async def test_an_allowed_body_arrives_with_its_type(anyio_backend: str) -> None:
    with serving(body(b"[1,2]")) as server:
        found = await fetcher().fetch(f"{server.url}/history?x=1")
    assert found == Fetched(f"{server.url}/history?x=1", b"[1,2]", "application/json")
    assert server.requests == [("/history?x=1", f"127.0.0.1:{server.port}")]


async def test_a_gzip_body_is_unpacked_also_in_several_members() -> None:
    with serving(body(gzip.compress(b"hello ") + gzip.compress(b"world"), coding="gzip")) as server:
        assert (await fetcher().fetch(server.url)).content == b"hello world"


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"],
)
async def test_loopback_is_refused_however_it_is_written(host: str) -> None:
    with serving(body(b"secret")) as server:
        with pytest.raises(RefusedError) as refused:
            await fetcher(allowed=()).fetch(f"http://{host}:{server.port}/")
    assert refused.value.reason is Reason.FORBIDDEN_ADDRESS
    assert server.requests == []


@pytest.mark.parametrize("address", ["10.0.0.1", "192.168.0.1", "169.254.169.254", "::ffff:10.0.0.1", "fd00::1"])
async def test_a_name_that_leads_to_a_private_address_is_refused(address: str) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["1.1.1.1", address]

    with pytest.raises(RefusedError, match="which is not public") as refused:
        await fetcher(allowed=(), resolve=resolve).fetch("http://inside.example/")
    assert refused.value.reason is Reason.FORBIDDEN_ADDRESS


async def test_a_name_is_looked_up_once_and_that_answer_is_connected_to() -> None:
    """Rebinding: a second look-up would give an address that was never vetted."""
    answers = [["127.0.0.1"], ["127.0.0.2"]]

    async def resolve(host: str, port: int) -> list[str]:
        return answers.pop(0)

    with serving(body(b"public")) as server, serving(body(b"secret"), address="127.0.0.2", port=server.port) as inside:
        found = await fetcher(resolve=resolve).fetch(f"http://rebind.example:{server.port}/")
    assert found.content == b"public"
    assert server.requests == [("/", f"rebind.example:{server.port}")]
    assert (inside.requests, answers) == ([], [["127.0.0.2"]])


async def test_a_name_that_has_been_rebound_by_the_time_of_a_redirect_is_refused() -> None:
    answers = [["127.0.0.1"], ["127.0.0.2"]]

    async def resolve(host: str, port: int) -> list[str]:
        return answers.pop(0)

    with (
        serving(redirect("/again")) as server,
        serving(body(b"secret"), address="127.0.0.2", port=server.port) as inside,
        pytest.raises(RefusedError) as refused,
    ):
        await fetcher(resolve=resolve).fetch(f"http://rebind.example:{server.port}/")
    assert refused.value.reason is Reason.FORBIDDEN_ADDRESS
    assert inside.requests == []


async def test_a_redirect_to_an_allowed_place_is_followed() -> None:
    with serving(body(b"here")) as target, serving(redirect(f"{target.url}/t")) as server:
        assert await fetcher().fetch(server.url) == Fetched(f"{target.url}/t", b"here", "application/json")


@pytest.mark.parametrize(
    "location",
    ["http://127.0.0.2:{port}/", "http://[::ffff:127.0.0.1]:{port}/", "file:///etc/passwd", "ftp://127.0.0.1/",
     "http://user:secret@127.0.0.1:{port}/", "//127.0.0.2:{port}/"],
)  # fmt: skip
async def test_a_redirect_to_a_refused_place_is_not_followed(location: str) -> None:
    with (
        serving(body(b"secret"), address="127.0.0.2") as inside,
        serving(redirect(location.format(port=inside.port))) as server,
        pytest.raises(RefusedError) as refused,
    ):
        await fetcher().fetch(server.url)
    assert refused.value.reason is Reason.FORBIDDEN_ADDRESS
    assert inside.requests == []
    assert len(server.requests) == 1


async def test_redirects_end_after_a_few() -> None:
    with serving(redirect("/again")) as server:
        with pytest.raises(RefusedError, match="more than 3 redirects"):
            await fetcher().fetch(server.url)
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "gopher://x/", "http:///nohost", "not a url", "http://[::1", "http://xn--/", ""]
)
async def test_other_schemes_and_broken_urls_are_refused(url: str) -> None:
    with pytest.raises(RefusedError) as refused:
        await fetcher().fetch(url)
    assert refused.value.reason is Reason.FORBIDDEN_ADDRESS


def test_an_allowed_network_that_is_none_is_said_at_once() -> None:
    with pytest.raises(SettingsError, match="not a network"):
        Fetcher(FetchPolicy(allowed=("10.0.0.0/8", "banana")))


async def test_a_password_in_a_url_is_not_repeated_in_the_error() -> None:
    with pytest.raises(RefusedError) as refused:
        await fetcher().fetch("http://user:hunter2@1.1.1.1/x")
    assert "hunter2" not in str(refused.value)


async def test_a_body_that_says_it_is_too_large_is_refused_unread() -> None:
    with serving(body(b"x" * 100, length=10**9)) as server:
        with pytest.raises(RefusedError, match="larger than 64 bytes") as refused:
            await fetcher(max_bytes=64).fetch(server.url)
    assert (refused.value.reason, len(server.requests)) == (Reason.OVERSIZE, 1)


async def test_a_body_that_turns_out_too_large_is_refused() -> None:
    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b"x" * 65536)
        except OSError:
            pass

    with serving(endless) as server:
        with pytest.raises(RefusedError) as refused:
            await fetcher(max_bytes=1_000_000).fetch(server.url)
    assert refused.value.reason is Reason.OVERSIZE


async def test_a_body_of_exactly_the_cap_is_taken() -> None:
    with serving(body(gzip.compress(b"x" * 1000), coding="gzip")) as server:
        assert len((await fetcher(max_bytes=1000).fetch(server.url)).content) == 1000
        with pytest.raises(RefusedError, match="larger than 999 bytes"):
            await fetcher(max_bytes=999).fetch(server.url)


async def test_a_gzip_bomb_is_refused_without_being_unpacked() -> None:
    bomb = gzip.compress(bytes(100_000_000), compresslevel=9)
    assert len(bomb) < 125_000
    with serving(body(bomb, coding="gzip")) as server:
        with pytest.raises(RefusedError) as refused:
            await fetcher().fetch(server.url)
    assert refused.value.reason is Reason.OVERSIZE


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip"])
async def test_a_coding_that_was_not_asked_for_is_refused(coding: str) -> None:
    with serving(body(b"x", coding=coding)) as server:
        with pytest.raises(RefusedError, match="was not asked for") as refused:
            await fetcher().fetch(server.url)
    assert refused.value.reason is Reason.MALFORMED


async def test_broken_gzip_is_refused() -> None:
    with serving(body(b"no gzip at all", coding="gzip")) as server:
        with pytest.raises(RefusedError) as refused:
            await fetcher().fetch(server.url)
    assert refused.value.reason is Reason.MALFORMED


async def test_a_server_that_drips_is_cut_off_after_the_deadline_of_each_try() -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            for _ in range(200):
                handler.wfile.write(b"x")
                handler.wfile.flush()
                time.sleep(0.02)
        except OSError:
            pass

    with serving(drip) as server:
        began = time.monotonic()
        with pytest.raises(UnreachableError, match=r"no answer in 0\.1 s"):
            await fetcher(seconds=0.1).fetch(server.url)
        assert 0.3 <= time.monotonic() - began < 2
        assert len(server.requests) == 3


async def test_trouble_is_tried_three_times_and_success_ends_it() -> None:
    statuses = [503, 500, 200]

    def answer(handler: BaseHTTPRequestHandler) -> None:
        body(b"at last", status=statuses.pop(0))(handler)

    with serving(answer) as server:
        assert (await fetcher().fetch(server.url)).content == b"at last"
    with serving(body(b"", status=503)) as server:
        with pytest.raises(UnavailableError, match="answered 503"):
            await fetcher().fetch(server.url)
    assert len(server.requests) == 3


@pytest.mark.parametrize(("status", "error"), [(404, NotFoundError), (410, NotFoundError), (403, RefusedError)])
async def test_a_clear_no_is_not_asked_again(status: int, error: type[Exception]) -> None:
    with serving(body(b"", status=status)) as server:
        with pytest.raises(error, match=f"answered {status}"):
            await fetcher().fetch(server.url)
    assert len(server.requests) == 1


async def test_nobody_there_is_unreachable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(UnreachableError):
            await fetcher().fetch(f"http://127.0.0.1:{taken.getsockname()[1]}/")


async def test_a_name_nobody_knows_is_unreachable() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(UnreachableError, match="Name or service not known"):
        await fetcher(resolve=resolve).fetch("http://nowhere.example/")


def certificate_for(name: str, folder: Path) -> Path:
    """A self-signed certificate with its key."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "certificate.pem"
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(secret + made.public_bytes(pem))
    return file


async def test_tls_is_checked_against_the_name_though_the_vetted_address_is_connected_to(tmp_path: Path) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    certificate = certificate_for("data.example", tmp_path)
    trust = ssl.create_default_context(cafile=str(certificate))
    server = Server(body(b"sealed"))
    server.secure(certificate)
    server.start()
    try:
        guarded = Fetcher(FetchPolicy(allowed=LOOPBACK, tries=1), resolve=resolve, tls=trust)
        assert (await guarded.fetch(f"https://data.example:{server.port}/")).content == b"sealed"
        with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
            await guarded.fetch(f"https://other.example:{server.port}/")
    finally:
        server.stop()


async def test_a_redirect_from_https_to_http_is_refused(tmp_path: Path) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    certificate = certificate_for("data.example", tmp_path)
    with serving(body(b"plain")) as plain:
        server = Server(redirect(f"http://data.example:{plain.port}/"))
        server.secure(certificate)
        server.start()
        try:
            tls = ssl.create_default_context(cafile=str(certificate))
            with pytest.raises(RefusedError, match="a redirect from https to http"):
                await Fetcher(FetchPolicy(allowed=LOOPBACK), resolve=resolve, tls=tls).fetch(
                    f"https://data.example:{server.port}/"
                )
        finally:
            server.stop()
    assert plain.requests == []
