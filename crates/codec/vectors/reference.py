"""A second implementation of the token format `mrtr1`, written from docs/token-format.md alone, to test
others against. Needs Python 3.10 and `cryptography`. Standard input has one JSON object per line, whose
`do` is `open`, `seal` (with the first secret) or `canonical`; each gets one object as its response."""
import base64, hashlib, hmac, io, json, os, re, sys
from decimal import Decimal
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, aead, algorithms, modes

class Refused(Exception): """A token that is not accepted; `str()` is the reason."""
class NotCanonical(Exception): """JSON text that has no canonical form."""
class Number(str): """A JSON number as written, to tell it from a string."""
class Members(list): """The members of a JSON object, to tell them from an array."""

def ensure(condition, why: str, error=ValueError):
    if not condition:
        raise error(why)

def write_number(text: str) -> str:  # section 6; that it is a JSON number is known
    parts = re.fullmatch(r"(-?)([0-9]+)\.?([0-9]*)[eE]?([+-]?)([0-9]*)", text)
    sign, whole, fraction, mark, exponent = parts.groups()
    digits = (whole + fraction).lstrip("0")
    significant = digits.rstrip("0")
    if not significant:
        return "0"
    power = int(mark + (exponent.lstrip("0")[:11] or "0"))  # 11 digits are beyond every limit
    zeros = power - len(fraction) + len(digits) - len(significant)
    if 0 <= zeros <= 2_147_483_647:
        return sign + significant + ("0" * zeros if zeros <= 21 else f"e{zeros}")
    double = float(f"{significant}e{zeros}" if zeros < 0 else "inf")
    ensure(double != float("inf"), "infinity")
    if double.is_integer():
        return write_number(sign + f"{Decimal(repr(double)):f}")
    plain = double >= 1e-6  # `repr` has the digits of Number::toString; these are its forms
    return sign + (f"{Decimal(repr(double)):f}" if plain else repr(double).replace("e-0", "e-"))

def write(value, depth: int = 0) -> str:  # depth: how many arrays and objects the value is inside
    ensure(depth < 128, "nesting")
    if isinstance(value, Members):
        ensure(len(dict(value)) == len(value), "two members with one key")
        value.sort(key=lambda member: member[0].encode("utf-16-be"))
        return "{" + ",".join(f"{write(key)}:{write(item, depth + 1)}" for key, item in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(write(item, depth + 1) for item in value) + "]"
    return write_number(value) if type(value) is Number else json.dumps(value, ensure_ascii=False)

def canonical(text: str) -> str:  # `int` refuses NaN and the like, `encode` lone surrogates
    try:
        return write(json.loads(text, parse_int=Number, parse_float=Number, parse_constant=int,
                                object_pairs_hook=Members)).encode().decode()
    except (ValueError, RecursionError) as error:
        raise NotCanonical("not_canonical") from error

def digest(arguments: str | None) -> bytes:
    form = "null" if arguments is None else canonical(arguments)
    return hashlib.sha256(b"{}" if form == "null" else form.encode()).digest()

def derive(secret: bytes, audience: str) -> tuple[bytes, bytes]:  # section 2
    ensure(len(secret) >= 32 and audience, "short secret or empty audience")
    prk, info = hmac.digest(b"mrtr sealed state v1", secret, "sha256"), b"\0" + audience.encode()
    key, key_id = (hmac.digest(prk, label + info + b"\1", "sha256") for label in (b"key", b"id"))
    return key, key_id[:16]

def xaes(key: bytes, nonce: bytes) -> aead.AESGCM:  # section 3
    ensure(len(nonce) == 24, "nonce")
    aes = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    k1 = int.from_bytes(aes.update(bytes(16)), "big") << 1
    k1 ^= (1 << 128 | 0x87) if k1 >> 128 else 0
    blocks = (int.from_bytes(bytes([0, i, 0x58, 0]) + nonce[:12], "big") ^ k1 for i in (1, 2))
    return aead.AESGCM(b"".join(aes.update(block.to_bytes(16, "big")) for block in blocks))

def number(n: int) -> bytes:  # section 4
    ensure(0 <= n < 1 << 64, "not a number of 64 bits")
    return bytes([n]) if n < 0x80 else bytes([n & 0x7F | 0x80]) + number(n >> 7)

def bound(binding: dict) -> list:  # principal, key, method, target, digest, as claims have them
    text = lambda value: number(len(value.encode())) + value.encode()
    option = lambda value, write: b"\0" if value is None else b"\1" + write(value)
    who, key = binding["principal"], binding.get("proof_key")
    known = who and text(who["issuer"]) + text(who["subject"]) + option(who["client"], text)
    return [known, None if key is None else text(key), text(binding["method"]),
            text(binding["target"]), digest(binding["arguments"])]

def read_claims(claims: bytes) -> tuple[int, int, list, bytes]:  # the list is as above
    source = io.BytesIO(claims)
    def take(size):
        ensure(size <= len(claims) - source.tell(), "claims end early")
        return source.read(size)
    def read_number():
        data = take(1)
        while data[-1] >= 0x80 and len(data) < 10:
            data += take(1)
        n = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(data))
        ensure(data == number(n), "not the shortest form")
        return n
    def text():
        data = take(read_number())
        return number(len(data)) + data.decode().encode()  # an error if it is not UTF-8
    def option(read):
        mark = take(1)
        return mark + read() if b"\0\1".index(mark) else mark  # an error if it is neither
    ensure(take(1) == b"\1", "format")
    issued, expires = read_number(), read_number()
    kind = b"\0\1\2\3".index(take(1))  # an error if it is none of them
    principal = text() + text() + option(text) if kind & 1 else None
    key = text() if kind & 2 else None
    return issued, expires, [principal, key, text(), text(), take(32)], source.read()

def seal(secret, audience, binding, issued, expires, body: bytes, nonce=None) -> str:
    (key, key_id), nonce = derive(secret, audience), os.urandom(24) if nonce is None else nonce
    who, proven, *request = bound(binding)
    kind = (who is not None) + 2 * (proven is not None)
    caller = bytes([kind]) + (who or b"") + (proven or b"")
    claims = b"\1" + number(issued) + number(expires) + caller + b"".join(request) + body
    ciphertext = xaes(key, nonce).encrypt(nonce[12:], claims, b"mrtr1." + key_id)
    return "mrtr1." + base64.urlsafe_b64encode(key_id + nonce + ciphertext).decode().rstrip("=")

def open_token(secrets, audience, token: str, binding, now) -> tuple[int, int, bytes]:
    wanted, reason = bound(binding), "malformed"
    ring = {key_id: key for key, key_id in (derive(secret, audience) for secret in secrets)}
    ensure(1 <= len(secrets) == len(ring) <= 16, "not a ring")
    ensure(len(token.encode("utf-8", "surrogatepass")) <= 131_072, "too_long", Refused)
    try:
        sealed = base64.urlsafe_b64decode(token[6:] + "==")  # lenient, but compared with the token
        again = "mrtr1." + base64.urlsafe_b64encode(sealed).decode().rstrip("=")
        ensure(token == again and len(sealed) >= 56, reason)
        key_id, nonce = sealed[:16], sealed[16:40]
        ensure(key_id in ring, "unknown_key", Refused)
        reason = "forged"
        claims = xaes(ring[key_id], nonce).decrypt(nonce[12:], sealed[40:], b"mrtr1." + key_id)
        reason = "unknown_format"
        issued, expires, found, body = read_claims(claims)
    except (ValueError, InvalidTag):
        raise Refused(reason) from None
    ensure(now < expires, "expired", Refused)  # section 5
    ensure(issued <= now + 60, "not_yet_valid", Refused)
    for name, theirs, mine in zip(("principal", "key", "method", "target", "arguments"), found, wanted):
        ensure(theirs == mine or (name, theirs) == ("key", None), f"wrong_{name}", Refused)
    return issued, expires, body

def answer(do, secrets=(), text="", body="", nonce=None, **rest) -> dict:
    if do == "canonical":
        return {"canonical": canonical(text), "digest": digest(text).hex()}
    secrets = [base64.urlsafe_b64decode(secret + "==") for secret in secrets]
    if do == "seal":
        body, nonce = bytes.fromhex(body), None if nonce is None else bytes.fromhex(nonce)
        return {"token": seal(secrets[0], body=body, nonce=nonce, **rest)}
    issued, expires, body = open_token(secrets, **rest)
    return {"issued": issued, "expires": expires, "body": body.hex()}

if __name__ == "__main__":
    for line in sys.stdin.buffer:
        try:
            result = answer(**json.loads(line))
        except (Refused, NotCanonical, LookupError, TypeError, ValueError) as e:
            result = {"refusal" if isinstance(e, (Refused, NotCanonical)) else "error": str(e)}
        print(json.dumps(result), flush=True)
