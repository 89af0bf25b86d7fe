//! The table of test vectors.
//!
//! The nonces are derived from the names of the vectors, so a renamed vector is another vector.

use base64::Engine as _;
use mrtr_codec::Digest;
use mrtr_codec::canonical::canonicalize;
use mrtr_codec::hazmat::seal_with_nonce;
use serde_json::{Value, json};

use super::{
    AUDIENCE, BASE64, NOW, Result, alice, anonymous, bytes, claims, hex, nonce, opens, rejected,
    ring, seal, vector, with, with_key,
};

#[expect(clippy::too_many_lines, reason = "a table of vectors")]
/// Returns the token vectors.
pub(crate) fn tokens() -> Result<Vec<Value>> {
    let mut all = Vec::new();
    let times = (NOW, NOW + 600);
    let home = ring(&["one"], AUDIENCE)?;

    // Tokens that open: bodies of lengths around the block size, all kinds of callers and requests.
    for length in [0, 1, 15, 16, 17, 64, 1024] {
        let name = format!("a body of {length} bytes");
        let body: Vec<u8> = bytes(&name).into_iter().cycle().take(length).collect();
        let token = seal(&home, &anonymous(), times, &body, &name)?;
        all.push(opens(vector(&name, &["one"], AUDIENCE, &token, &anonymous(), NOW), times, &body));
    }
    let client = with(alice(), "/principal/client", json!("app"));
    for (name, binding) in [
        ("a known caller", alice()),
        ("a caller through a client", client.clone()),
        ("a client whose name is empty", with(alice(), "/principal/client", json!(""))),
        ("a caller whose name is not ASCII", with(alice(), "/principal/subject", json!("Ægir 🌊"))),
        (
            "a resource",
            with(
                with(anonymous(), "/method", json!("resources/read")),
                "/target",
                json!("doc://7?lang=de"),
            ),
        ),
        ("a target of 200 bytes", with(anonymous(), "/target", json!("x".repeat(200)))),
        ("no arguments", with(anonymous(), "/arguments", Value::Null)),
        ("arguments that are null", with(anonymous(), "/arguments", json!("null"))),
        (
            "arguments beyond doubles",
            with(anonymous(), "/arguments", json!(r#"{"account":9007199254740993}"#)),
        ),
    ] {
        let token = seal(&home, &binding, times, b"state", name)?;
        all.push(opens(vector(name, &["one"], AUDIENCE, &token, &binding, NOW), times, b"state"));
    }
    for (name, sealed, asked) in [
        ("a caller that proves a key", with_key(alice(), "k1"), with_key(alice(), "k1")),
        (
            "a client that proves a key",
            with_key(client.clone(), "k1"),
            with_key(client.clone(), "k1"),
        ),
        (
            "an anonymous caller that proves a key",
            with_key(anonymous(), "k1"),
            with_key(anonymous(), "k1"),
        ),
        ("a caller that begins to prove a key", alice(), with_key(alice(), "k1")),
    ] {
        let token = seal(&home, &sealed, times, b"state", name)?;
        all.push(opens(vector(name, &["one"], AUDIENCE, &token, &asked, NOW), times, b"state"));
    }
    for (name, sealed, asked) in [
        (
            "arguments in another form",
            r#"{"a":1,"b":[1.0,"x"]}"#,
            "{ \"b\" : [1e0, \"\\u0078\"], \"a\": 10e-1 }",
        ),
        ("absent arguments are an empty object", "{}", "null"),
    ] {
        let token =
            seal(&home, &with(anonymous(), "/arguments", json!(sealed)), times, b"state", name)?;
        let binding = with(anonymous(), "/arguments", json!(asked));
        all.push(opens(vector(name, &["one"], AUDIENCE, &token, &binding, NOW), times, b"state"));
    }
    for (name, times, now) in [
        ("a minute before it was issued", (NOW + 60, NOW + 600), NOW),
        ("a second before it expires", (NOW, NOW + 600), NOW + 599),
        ("for months", (NOW, NOW + 10_000_000), NOW + 9_999_999),
        ("with the greatest possible expiry", (0, u64::MAX), u64::MAX - 1),
    ] {
        let token = seal(&home, &anonymous(), times, b"state", name)?;
        all.push(opens(
            vector(name, &["one"], AUDIENCE, &token, &anonymous(), now),
            times,
            b"state",
        ));
    }
    let token = seal(&home, &anonymous(), times, b"state", "a retiring key")?;
    all.push(opens(
        vector("a retiring key", &["two", "one"], AUDIENCE, &token, &anonymous(), NOW),
        times,
        b"state",
    ));
    let long = ring(&["one"], &"é".repeat(100))?;
    let token = seal(&long, &anonymous(), times, b"state", "a long audience")?;
    all.push(opens(
        vector("a long audience", &["one"], &"é".repeat(100), &token, &anonymous(), NOW),
        times,
        b"state",
    ));

    // Malformed tokens.
    let good = seal(&home, &anonymous(), times, b"state", "good")?;
    let inner = good.strip_prefix("mrtr1.").ok_or("the prefix")?;
    let raw = BASE64.decode(inner)?;
    let reject = |name: &str, token: &str, reason: &str| {
        rejected(vector(name, &["one"], AUDIENCE, token, &anonymous(), NOW), reason)
    };
    let loose = {
        // The last of 4n + 2 or 4n + 3 characters has unused bits.
        let token = seal(&home, &anonymous(), times, b"stat", "loose")?;
        let token = if (token.len() - 6) % 4 == 0 {
            seal(&home, &anonymous(), times, b"states", "loose")?
        } else {
            token
        };
        let last = token.chars().next_back().ok_or("a last character")?;
        let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let next = alphabet
            .chars()
            .nth(alphabet.find(last).ok_or("in the alphabet")? + 1)
            .ok_or("a next one")?;
        format!("{}{next}", &token[..token.len() - 1])
    };
    for (name, token) in [
        ("nothing", String::new()),
        ("the prefix alone", "mrtr1.".to_owned()),
        ("another version", good.replacen("mrtr1.", "mrtr2.", 1)),
        ("a prefix in capitals", good.replacen("mrtr1.", "MRTR1.", 1)),
        ("no prefix", inner.to_owned()),
        ("a leading space", format!(" {good}")),
        ("a trailing line break", format!("{good}\n")),
        ("padding", format!("{good}=")),
        ("a character of the other alphabet", format!("{}+", &good[..good.len() - 1])),
        ("a character outside ASCII", format!("{}é", &good[..good.len() - 1])),
        ("one character too many", format!("mrtr1.{}A", BASE64.encode(&raw[..57]))),
        ("unused bits that are not zero", loose),
        ("55 bytes", format!("mrtr1.{}", BASE64.encode(&raw[..55]))),
    ] {
        all.push(reject(name, &token, "malformed"));
    }
    all.push(reject("131 073 bytes", &format!("mrtr1.{}", "A".repeat(131_067)), "too_long"));

    // Tokens of another key.
    let mut other_id = raw.clone();
    other_id[0] ^= 1;
    let encode = |bytes: &[u8]| format!("mrtr1.{}", BASE64.encode(bytes));
    all.push(reject("a key id that was changed", &encode(&other_id), "unknown_key"));
    all.push(rejected(
        vector("a key that was removed", &["two"], AUDIENCE, &good, &anonymous(), NOW),
        "unknown_key",
    ));
    all.push(rejected(
        vector("another audience", &["one"], "https://other.example/mcp", &good, &anonymous(), NOW),
        "unknown_key",
    ));

    // Modified tokens.
    for (name, at) in [
        ("the first half of the nonce", 16),
        ("the second half of the nonce", 39),
        ("the ciphertext", 40),
        ("the tag", raw.len() - 1),
    ] {
        let mut changed = raw.clone();
        changed[at] ^= 0x80;
        all.push(reject(&format!("a bit in {name}"), &encode(&changed), "forged"));
    }
    all.push(reject("one byte too few", &encode(&raw[..raw.len() - 1]), "forged"));
    all.push(reject("one byte too many", &encode(&[&raw[..], &[0]].concat()), "forged"));
    all.push(reject("56 bytes", &encode(&raw[..56]), "forged"));
    let second = BASE64.decode(&seal(&home, &anonymous(), times, b"other", "second")?[6..])?;
    all.push(reject(
        "the head of one token and the rest of another",
        &encode(&[&raw[..40], &second[40..]].concat()),
        "forged",
    ));
    let two = ring(&["two"], AUDIENCE)?;
    let foreign = BASE64.decode(&seal(&two, &anonymous(), times, b"state", "foreign")?[6..])?;
    let renamed = encode(&[&raw[..16], &foreign[16..]].concat());
    all.push(rejected(
        vector(
            "another key's token under this key's id",
            &["one", "two"],
            AUDIENCE,
            &renamed,
            &anonymous(),
            NOW,
        ),
        "forged",
    ));

    // Claims that cannot be decoded.
    let fine = claims(&anonymous(), times, b"")?;
    let edit = |edit: &dyn Fn(&mut Vec<u8>)| {
        let mut claims = fine.clone();
        edit(&mut claims);
        claims
    };
    for (name, claims) in [
        ("no claims", Vec::new()),
        ("format 0", edit(&|claims| claims[0] = 0)),
        ("format 2", edit(&|claims| claims[0] = 2)),
        (
            "a number that is not in its shortest form",
            edit(&|claims| drop(claims.splice(1..6, [0x80, 0x00]))),
        ),
        (
            "a number beyond 64 bits",
            edit(&|claims| drop(claims.splice(1..6, [0xff; 9].into_iter().chain([0x02])))),
        ),
        ("a number that does not end", [&[1][..], &[0xff; 11]].concat()),
        ("a principal of kind 2", edit(&|claims| claims[11] = 2)),
        ("a caller of kind 4", edit(&|claims| claims[11] = 4)),
        ("a caller of kind 255", edit(&|claims| claims[11] = 255)),
        ("a key that is not UTF-8", [&fine[..11], &[2, 1, 0xff], &fine[12..]].concat()),
        ("a client of kind 2", [&fine[..11], &[1, 0, 0, 2], &fine[12..]].concat()),
        ("a client that is not UTF-8", [&fine[..11], &[1, 0, 0, 1, 1, 0xff], &fine[12..]].concat()),
        ("a method that is not UTF-8", edit(&|claims| claims[13] = 0xff)),
        ("a method that is longer than the rest", edit(&|claims| claims[12] = 0x7f)),
        ("a digest that is cut off", fine[..fine.len() - 1].to_vec()),
    ] {
        let token = seal_with_nonce(&home, &claims, &nonce(name))?;
        all.push(reject(name, &token, "unknown_format"));
    }

    // Tokens at another time, of another caller or for another request.
    for (name, times, now, reason) in [
        ("when it expires", (NOW, NOW + 600), NOW + 600, "expired"),
        ("when it expires at once", (NOW, NOW), NOW, "expired"),
        ("61 seconds before it was issued", (NOW + 61, NOW + 600), NOW, "not_yet_valid"),
        ("expired before it was issued", (NOW + 1000, NOW), NOW, "expired"),
    ] {
        let token = seal(&home, &anonymous(), times, b"state", name)?;
        all.push(rejected(vector(name, &["one"], AUDIENCE, &token, &anonymous(), now), reason));
    }
    let shifted = json!({ "issuer": "https://login.examplea", "subject": "lice", "client": null });
    for (name, sealed, asked) in [
        ("a known caller's, from an anonymous caller", alice(), anonymous()),
        ("an anonymous caller's, from a known caller", anonymous(), alice()),
        ("another subject", alice(), with(alice(), "/principal/subject", json!("bob"))),
        (
            "another issuer",
            alice(),
            with(alice(), "/principal/issuer", json!("https://evil.example")),
        ),
        ("a subject in capitals", alice(), with(alice(), "/principal/subject", json!("Alice"))),
        ("issuer and subject split elsewhere", alice(), with(alice(), "/principal", shifted)),
        ("another client", client.clone(), with(alice(), "/principal/client", json!("other"))),
        ("a removed client", client.clone(), alice()),
        ("an added client", alice(), client),
        ("an added client without a name", alice(), with(alice(), "/principal/client", json!(""))),
    ] {
        let token = seal(&home, &sealed, times, b"state", name)?;
        all.push(rejected(
            vector(name, &["one"], AUDIENCE, &token, &asked, NOW),
            "wrong_principal",
        ));
    }
    for (name, sealed, asked) in [
        ("another key", with_key(alice(), "k1"), with_key(alice(), "k2")),
        ("a key that is longer", with_key(alice(), "k1"), with_key(alice(), "k11")),
        ("a removed key", with_key(alice(), "k1"), alice()),
        ("a key without characters", with_key(alice(), ""), alice()),
        ("a removed key of an anonymous caller", with_key(anonymous(), "k1"), anonymous()),
    ] {
        let token = seal(&home, &sealed, times, b"state", name)?;
        all.push(rejected(vector(name, &["one"], AUDIENCE, &token, &asked, NOW), "wrong_key"));
    }
    let account = |n: u64| with(anonymous(), "/arguments", json!(format!(r#"{{"account":{n}}}"#)));
    for (name, sealed, asked, reason) in [
        (
            "another method",
            anonymous(),
            with(anonymous(), "/method", json!("prompts/get")),
            "wrong_method",
        ),
        ("another target", anonymous(), with(anonymous(), "/target", json!("pay")), "wrong_target"),
        (
            "method and target split elsewhere",
            anonymous(),
            with(with(anonymous(), "/method", json!("tools/callb")), "/target", json!("ook")),
            "wrong_method",
        ),
        (
            "another number",
            anonymous(),
            with(anonymous(), "/arguments", json!(r#"{"people":3}"#)),
            "wrong_arguments",
        ),
        (
            "a number as a string",
            anonymous(),
            with(anonymous(), "/arguments", json!(r#"{"people":"2"}"#)),
            "wrong_arguments",
        ),
        (
            "an additional member",
            anonymous(),
            with(anonymous(), "/arguments", json!(r#"{"people":2,"vip":null}"#)),
            "wrong_arguments",
        ),
        (
            "removed arguments",
            anonymous(),
            with(anonymous(), "/arguments", Value::Null),
            "wrong_arguments",
        ),
        (
            "the next account number",
            account(9_007_199_254_740_993),
            account(9_007_199_254_740_992),
            "wrong_arguments",
        ),
    ] {
        let token = seal(&home, &sealed, times, b"state", name)?;
        all.push(rejected(vector(name, &["one"], AUDIENCE, &token, &asked, NOW), reason));
    }
    Ok(all)
}

/// Returns the vectors of the canonical form.
pub(crate) fn canonical() -> Vec<Value> {
    let deepest = format!("{}1{}", "[".repeat(127), "]".repeat(127));
    let too_deep = format!("{}1{}", "[".repeat(128), "]".repeat(128));
    let objects = |depth: usize| format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    let (deepest_objects, too_deep_objects) = (objects(127), objects(128));
    [
        "null", "true", " [ ] ", "{}", "{ \"b\":1 , \"a\":{} }", "1", "1.0", "1e0", "10e-1", "0.1e1", "-0", "0e99999999999", "-10",
        "0.5", "5e-1", "9007199254740993", "9007199254740993.0", "123456789012345678901234567890", "1e21", "1e22",
        "10000000000000000000000", "-12e400", "1e2147483647",
        "0.1e2147483648",
        "0.99999999999999999999",
        "123456789012345678901234567890.5",
        "1e-6", "0.1", "1e-7", "0.000001", "123456789.125", "1e-400", "-1e-400", "4.9e-324", "2e-324",
        "333333333.33333329", "1.7976931348623157e308", "9007199254740993.5", "123456789012345680000.5",
        "\"\\u00e9\"", "\"é\"", "\"e\u{301}\"", "\"\\u000f\\n\\/\\u005c\\u0022\"", "\"\u{7f}\u{2028}\"", "\"\\ud83d\\ude00\"",
        "{\"\\u20ac\":1,\"\\r\":2,\"\\ufb33\":3,\"1\":4,\"\\ud83d\\ude00\":5,\"\\u0080\":6,\"\\u00f6\":7}",
        &deepest,
        &deepest_objects,
        "\"\\b\\f\\n\\r\\t\\\"\\\\\\/\"", "\"\\u0008\\u000C\\u000a\\u000D\\u0009\\u0000\\u001F\"", "\"\\uDBFF\\uDFFF\"",
        // Texts without a canonical form.
        "", "nul", "NaN", "Infinity", "01", "-", "1.", ".5", "+1", "1e", "[1,]", "{,}", "[1 2]", "1 1", "'a'", "\"a", "\"\\x\"", "\"a\nb\"",
        "{\"a\":1,\"\\u0061\":2}", "\"\\ud800\"", "\"\\udc00\\ud800\"", "1e2147483648",
        "10e2147483647", "-1e99999999999", "1e400.5", "17976931348623157e293.5",
        "179769313486231590000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000.5",
        &too_deep,
        &too_deep_objects,
        // A high surrogate without a low one behind it, and truncated escapes.
        "\"\\ud800a\"", "\"\\ud800\\n\"", "\"\\ud800u0000\"", "\"\\ud800\\u0041\"", "\"\\ud800", "\"\\ud8\"", "\"\\",
    ]
    .into_iter()
    .map(|text| match (canonicalize(text), Digest::from_json(Some(text))) {
        (Ok(form), Ok(digest)) => {
            json!({ "text": text, "canonical": form, "digest": hex(digest.as_bytes()) })
        }
        _ => json!({ "text": text, "refusal": "not_canonical" }),
    })
    .collect()
}
